"""No line of the package can unpickle, evaluate, unpack or fetch what it should not."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import depthbench
import residuals

ROOTS = [Path(package.__file__).parent for package in (depthbench, residuals)]
FILES = {
    str(file.relative_to(root.parent)): file.read_text(encoding="utf-8")
    for root in ROOTS
    for file in root.rglob("*.py")
}

MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {
    *("eval", "exec", "compile", "breakpoint"),
    *("os.system", "os.popen", "runpy.run_path", "runpy.run_module"),
    *("torch.load", "torch.jit.load", "torch.hub.load", "np.load", "numpy.load", "np.fromregex"),
    *("pd.read_pickle", "pandas.read_pickle", "yaml.full_load", "yaml.unsafe_load"),
    *("yaml.load_all", "yaml.unsafe_load_all", "yaml.full_load_all"),
}
ATTRIBUTES = {"extract", "extractall", "unpack_archive", "read_pickle", "to_pickle", "from_pickle"}
NAMES = {"FileSystemReader", "FileSystemWriter", "UnsafeLoader", "FullLoader", "DefaultTrainer"}
ONLY_FALSE = {"trust_remote_code", "allow_pickle", "shell"}
ONLY_TRUE = {"weights_only", "autoescape"}

# What is right in one place alone, and has been looked at there.
ALLOWED = {
    ("depthbench/inputs.py", "yaml.load"),  # with a subclass of SafeLoader, see test_bounds
    ("depthbench/doctor.py", "__import__"),  # of names that stand there
    ("depthbench/pages.py", "Environment"),  # with autoescape
    ("depthbench/domains/items.py", "Environment"),  # prompts are no markup, the templates ours
    ("depthbench/report/page.py", "Markup"),  # our own style and script
    ("depthbench/report/plot.py", "Markup"),  # made of escaped parts
    ("depthbench/comparison/page.py", "Markup"),  # our own style
    ("depthbench/harness/zero_shot.py", "urlopen"),  # only asks whether the hub answers
    ("depthbench/domains/sources.py", "datasets.load_dataset"),  # with --hub
    ("depthbench/data/hub/repository.py", "hf_hub_download"),  # `data prepare`
    ("depthbench/data/hub/prepare.py", "hf_hub_download"),
    ("depthbench/data/hub/shards.py", "datasets.load_dataset"),  # reads parquet, by its name
    ("residuals/registry.py", "importlib.import_module"),  # the modules beside it
    ("residuals/registry.py", "spec.loader.exec_module"),  # a file named on the command line
    ("residuals/registry.py", "entry.load"),  # an installed package
}
GUARDED = {
    *("yaml.load", "importlib.import_module", "spec.loader.exec_module", "entry.load"),
    *("__import__", "Environment", "Markup", "urlopen", "urllib.request.urlopen", "requests.get"),
    *("datasets.load_dataset", "load_dataset", "datasets.load_dataset_builder"),
    *("hf_hub_download", "snapshot_download", "huggingface_hub.snapshot_download"),
}


def faults(source: str, name: str = "x.py") -> Iterator[str]:
    """Each forbidden thing in a module, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            for known in (module or "", *(alias.name for alias in node.names)):
                if known.partition(".")[0] in MODULES or known in NAMES:
                    yield f"{name}:{node.lineno}: import of {known}"
        if isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield f"{name}:{node.lineno}: {node.attr}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            last = called.rpartition(".")[2]
            if called in CALLS or ("." in called and last in ATTRIBUTES):
                yield f"{name}:{node.lineno}: {called}"
            if called in GUARDED and (name, called) not in ALLOWED:
                yield f"{name}:{node.lineno}: {called}"
            if last == "from_pretrained" and "tokenizer" not in called.lower():
                yield f"{name}:{node.lineno}: {called}"
            for keyword in node.keywords:
                value = ast.unparse(keyword.value)
                bad_false = keyword.arg in ONLY_FALSE and value != "False"
                if bad_false or (keyword.arg in ONLY_TRUE and value != "True"):
                    yield f"{name}:{node.lineno}: {keyword.arg}={value}"


def test_nothing_forbidden_is_called() -> None:
    assert len(FILES) > 200
    assert [fault for name, source in FILES.items() for fault in faults(source, name)] == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import joblib.numpy_pickle as j",
        "from dill import loads",
        "x = torch.load(p)",
        "torch.load(p, weights_only=False)",
        "np.load(p, allow_pickle=True)",
        "pd.read_pickle(p)",
        "yaml.load(text, Loader=L)",
        "yaml.unsafe_load(text)",
        "eval('1')",
        "exec(text)",
        "os.system('ls')",
        "subprocess.run(command, shell=True)",
        "archive.extractall(place)",
        "tarfile.open(p).extract(name)",
        "load(trust_remote_code=True)",
        "AutoModel.from_pretrained(p)",
        "datasets.load_dataset(name)",
        "hf_hub_download(name)",
        "from torch.distributed.checkpoint import FileSystemReader",
        "dcp.FileSystemReader(p)",
        "Environment(loader=l)",
        "Environment(autoescape=False)",
        "Markup(text)",
        "importlib.import_module(name)",
        "urllib.request.urlopen(u)",
    ],
)
def test_each_forbidden_thing_is_found(source) -> None:
    assert list(faults(source))


def test_what_is_allowed_is_still_there() -> None:
    """So that the list does not outlive what it excuses."""
    found = {
        (name, ast.unparse(node.func))
        for name, source in FILES.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
    }
    assert found >= ALLOWED


def test_no_template_switches_escaping_off() -> None:
    templates = [file for root in ROOTS for file in root.rglob("*.j2")]
    assert len(templates) > 5
    for template in templates:
        text = template.read_text(encoding="utf-8")
        assert "|safe" not in text.replace(" ", "")
        assert "autoescape" not in text
        assert "|urlize" not in text.replace(" ", "")
