"""As much of the hub's API as one data set's way there and back takes, on this machine.

`python tests/jaxlake/datasets/local_hub.py` prints the port. The hub itself can't be reached from
tests; what talks to this one is the hub's own library. There is one revision, the last.
"""

import base64
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

NAME, REVISION = "you/lakes", "a" * 40
API, LARGE = f"/api/datasets/{NAME}", f"/datasets/{NAME}.git/info/lfs/objects/batch"

files: dict[str, bytes] = {}
uploads: dict[str, bytes] = {}  # by SHA-256, until a commit names them


def _entry(path: str) -> dict[str, Any]:
    digest = hashlib.sha1(files[path]).hexdigest()
    return {"type": "file", "path": path, "size": len(files[path]), "oid": digest}


def _listing(folder: str) -> list[dict[str, Any]]:
    """What lies in a folder, without what lies in its own folders."""
    found = {}
    for path in files:
        if path.startswith(folder):
            name, inside, _ = path.removeprefix(folder).partition("/")
            directory = {"type": "directory", "path": folder + name, "size": 0, "oid": "d" * 40}
            found[name] = directory if inside else _entry(path)
    return list(found.values())


class Hub(BaseHTTPRequestHandler):
    """Answers the requests of `push_to_hub` and `load_dataset`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if folder := re.fullmatch(rf"{API}/tree/[^/]+/?(.*)", path):
            found = _listing(f"{folder[1]}/" if folder[1] else "")
            return self._answer(found) if found or not folder[1] else self._missing()
        if file := re.fullmatch(rf"/datasets/{NAME}/resolve/[^/]+/(.*)", path):
            return self._answer(files[file[1]]) if file[1] in files else self._missing()
        if re.fullmatch(rf"{API}(/revision/[^/]+)?", path):
            siblings = [{"rfilename": name} for name in files]
            return self._answer({"id": NAME, "sha": REVISION, "tags": [], "siblings": siblings})
        return self._missing()

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        content = self._body()
        uploads[hashlib.sha256(content).hexdigest()] = content
        self._answer({})

    def do_POST(self) -> None:
        path, body = urlsplit(self.path).path, self._body()
        if path == f"{API}/preupload/main":
            self._answer(
                {"files": [self._mode(file["path"]) for file in json.loads(body)["files"]]}
            )
        elif path == LARGE:
            link = f"http://{self.headers['host']}/upload"
            actions = {"actions": {"upload": {"href": link}}}
            objects = [one | actions for one in json.loads(body)["objects"]]
            self._answer({"transfer": "basic", "objects": objects})
        elif path == f"{API}/commit/main":
            self._commit([json.loads(line) for line in body.splitlines()])
        elif path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        else:
            self._missing()

    @staticmethod
    def _mode(path: str) -> dict[str, Any]:
        mode = "lfs" if path.endswith(".parquet") else "regular"
        return {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": None}

    def _commit(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if line["key"] == "lfsFile":
                files[line["value"]["path"]] = uploads[line["value"]["oid"]]
            elif line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        link = f"http://{self.headers['host']}/datasets/{NAME}/commit/{REVISION}"
        self._answer({"success": True, "commitUrl": link, "commitOid": REVISION})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["content-length"]))

    def _missing(self) -> None:
        self._answer({"error": "Entry not found"}, status=404)

    def _answer(self, value: Any, status: int = 200) -> None:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        if status == 404:
            self.send_header("x-error-code", "EntryNotFound")
        self.send_header("x-repo-commit", REVISION)
        self.send_header("etag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    print(server.server_port, flush=True)
    server.serve_forever()
