"""A server on loopback that answers as the Hugging Face hub does, for one data set."""

import hashlib
import json
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

REPOSITORY, COMMIT = "HuggingFaceFW/fineweb-edu", "c" * 40


class FakeHub:
    """Serves the folder `root` as the data set and one tokenizer; counts what is asked for.

    Whole files named in `failing` break off in the middle as many times as their number says.
    """

    def __init__(self, root: Path, tokenizer: Path) -> None:
        self.root, self.tokenizer = root, tokenizer
        self.failing: dict[str, int] = {}
        self.asked: Counter[str] = Counter()
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def entry(self, name: str) -> dict[str, Any]:
        path = self.root / name
        if path.is_dir():
            return {"type": "directory", "oid": "d" * 40, "size": 0, "path": name}
        content = path.read_bytes()
        found = {"type": "file", "oid": "f" * 40, "size": len(content), "path": name}
        if path.suffix == ".parquet":
            oid = hashlib.sha256(content).hexdigest()
            found["lfs"] = {"oid": oid, "size": len(content), "pointerSize": 134}
        return found

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        api = f"/api/datasets/{REPOSITORY}"
        if path.startswith(f"{api}/revision/"):
            siblings = [{"rfilename": name} for name in self.hub.names()]
            self._json({"_id": "1", "id": REPOSITORY, "sha": COMMIT, "siblings": siblings})
        elif path.startswith(f"{api}/tree/{COMMIT}"):
            under = path.removeprefix(f"{api}/tree/{COMMIT}").strip("/")
            deep = parse_qs(urlsplit(self.path).query).get("recursive") == ["True"]
            self._json(
                [
                    self.hub.entry(name)
                    for name in self.hub.names()
                    if (not under or name.startswith(f"{under}/"))
                    and (deep or "/" not in name.removeprefix(under).strip("/"))
                ]
            )
        elif path.endswith("/tokenizer.json"):
            self._file("tokenizer.json", self.hub.tokenizer)
        elif "/resolve/" in path:
            name = path.split("/resolve/")[1].partition("/")[2]
            self._file(name, self.hub.root / name)
        else:
            self._nothing()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        paths = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body)["paths"]
        self._json([self.hub.entry(name) for name in paths if (self.hub.root / name).exists()])

    def _file(self, name: str, path: Path) -> None:
        if not path.is_file():
            self._nothing()
            return
        content = path.read_bytes()
        first, last = 0, len(content) - 1
        asked = self.headers.get("Range")
        if asked:
            start, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = int(start), min(int(end or last), last)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(last - first + 1))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.hub.asked[name] += 1
        if self.hub.failing.get(name, 0) > 0:
            self.hub.failing[name] -= 1
            self.wfile.write(content[first : (first + last) // 2])
            self.wfile.flush()
            self.close_connection = True
            return
        self.wfile.write(content[first : last + 1])

    def _json(self, value: object) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _nothing(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass
