"""A small HTTP server that answers like the Hugging Face hub for one model: info, tree and files, as far as
huggingface_hub's snapshot_download asks for them."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self._answer(with_body=False)

    def do_GET(self):
        self._answer(with_body=True)

    def log_message(self, *_):
        pass

    def _answer(self, with_body):
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        prefix = f"/{hub.repo_id}/resolve/{COMMIT}/"
        if path in (f"/api/models/{hub.repo_id}", f"/api/models/{hub.repo_id}/revision/main"):
            siblings = [{"rfilename": name} for name in hub.files]
            self._send(200, json.dumps({"id": hub.repo_id, "sha": COMMIT, "siblings": siblings}).encode(), with_body)
        elif path.startswith(f"/api/models/{hub.repo_id}/tree/"):
            entries = [
                {"type": "file", "path": name, "size": len(body), "oid": _etag(body)}
                for name, body in hub.files.items()
            ]
            self._send(200, json.dumps(entries).encode(), with_body)
        elif path.startswith(prefix) and (name := path.removeprefix(prefix)) in hub.files:
            self._send_file(hub, name, with_body)
        else:
            headers = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
            self._send(404, b'{"error": "Repository not found"}', with_body, headers)

    def _send_file(self, hub, name, with_body):
        body = hub.files[name]
        asked = self.headers.get("Range") if with_body else None
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        headers = {"ETag": f'"{_etag(body)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if asked:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        cut = with_body and name == hub.cut_file
        hub.cut_file = None if cut else hub.cut_file
        self._send(206 if asked else 200, body[start:], with_body, headers, sent=len(body) // 2 if cut else None)
        if cut:
            hub.half_sent.set()
            hub.go_on.wait(60)
            self.close_connection = True

    def _send(self, status, body, with_body, headers=None, sent=None):
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body[:sent])
            self.wfile.flush()


def _etag(body):
    return hashlib.sha1(body).hexdigest()


class Hub:
    """repo_id: the one model that exists. files: name -> bytes. requests: what was asked, in order.

    cut_file: the first answer with this file stops half-way; `half_sent` is set then, and the connection closes
    after `go_on`. Later requests, for all or the rest of it, are answered in full.
    """

    def __init__(self, repo_id, folder):
        self.repo_id = repo_id
        self.files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        self.requests = []
        self.cut_file = None
        self.half_sent, self.go_on = threading.Event(), threading.Event()


@contextmanager
def serve(hub):
    """Answer on a free port of this machine; gives the address for HF_ENDPOINT."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.hub = hub
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        hub.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
