"""Serve a model written by `onepos export MODEL --onnx FILE`; needs onnxruntime and numpy, not onepos.

    python serve_onnx.py model.onnx 8000
    curl 127.0.0.1:8000 -d '[[0.5, 1.2, 3.0], [0.1, 0.4, 2.0]]'

The answer has one object per row: the predicted labels with their probabilities. Wrong input is answered with 400.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
facts = json.loads(session.get_modelmeta().custom_metadata_map["onepos"])


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        try:
            rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            (p,) = session.run(["probability"], {"rows": np.asarray_chkfinite(rows, np.float64)})
            # A label is kept above its threshold; where these are too few, the next most probable ones are too.
            kept = (above := p > facts["thresholds"]) | ((-p - above).argsort().argsort() < facts["min_labels"])
            status, answer = 200, [{facts["labels"][k]: row[k] for k in np.flatnonzero(c)} for row, c in zip(p, kept)]
        except Exception as error:
            status, answer = 400, {"error": str(error)}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
