"""libcurl as a client of the far end of a tunnel: HTTP/3 CONNECT, as curl speaks it to any proxy,
and CONNECT-UDP, with its datagrams in capsules.

It serves a folder on the loopback interface itself and fetches a file of it through the proxy, so
that nothing of ours is behind the tunnel. What came is written to a file; facts go to stdout.
"""

import argparse
import base64
import functools
import http.server
import os
import sys
import threading

from curl_cffi import Curl, CurlError, CurlOpt

# CURLPROXY_HTTPS3, and versions of HTTP by libcurl's numbers.
PROXY_OVER_HTTP3 = 8
HTTP_1_1 = 2
ONLY_HTTP_3 = 31


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def serve(folder):
    handler = functools.partial(Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def perform(options):
    """The status of the answer, the content, and what went wrong."""
    curl, content, statuses = Curl(), bytearray(), []
    try:
        def look(line):
            if line.startswith(b"HTTP/"):
                statuses.append(int(line.split()[1]))
            return len(line)

        def take(piece):
            content.extend(piece)
            return len(piece)

        curl.setopt(CurlOpt.WRITEFUNCTION, take)
        curl.setopt(CurlOpt.HEADERFUNCTION, look)
        curl.setopt(CurlOpt.TIMEOUT, 60)
        # The proxy's status is told nowhere else.
        curl.setopt(CurlOpt.VERBOSE, 1)
        for option, value in options.items():
            curl.setopt(option, value)
        error = None
        try:
            curl.perform()
        except CurlError as failure:
            error = failure
        return statuses, bytes(content), error
    finally:
        curl.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("proxy", help="localhost and a port")
    parser.add_argument("folder")
    parser.add_argument("name")
    parser.add_argument("arrived")
    parser.add_argument("--invitation", required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--target", help="fetch from this port, whoever is there")
    parser.add_argument("--over-http3", action="store_true", help="what the target speaks")
    parser.add_argument("--stranger", action="store_true", help="show no credential")
    args = parser.parse_args()
    # What libcurl says goes to stderr.
    os.dup2(1, 2)

    credential = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=")
    bearer = b"Bearer " + credential
    if not args.stranger:
        statuses, _, error = perform({
            CurlOpt.URL: f"https://{args.proxy}/.well-known/anabranch/tunnel".encode(),
            CurlOpt.HTTP_VERSION: ONLY_HTTP_3,
            CurlOpt.CAINFO: args.ca.encode(),
            CurlOpt.POSTFIELDS: b"",
            CurlOpt.POSTFIELDSIZE: 0,
            CurlOpt.HTTPHEADER: [
                b"authorization: " + bearer,
                b"anabranch-invitation: " + args.invitation.encode(),
                b"anabranch-name: curl",
            ],
        })
        print("join", *statuses, error or "", flush=True)

    port = args.target or serve(args.folder)
    origin = "https://localhost" if args.over_http3 else "http://127.0.0.1"
    headers = [] if args.stranger else [b"proxy-authorization: " + bearer]
    statuses, content, error = perform({
        CurlOpt.URL: f"{origin}:{port}/{args.name}".encode(),
        CurlOpt.HTTP_VERSION: ONLY_HTTP_3 if args.over_http3 else HTTP_1_1,
        CurlOpt.PROXY: f"https://{args.proxy}".encode(),
        CurlOpt.PROXYTYPE: PROXY_OVER_HTTP3,
        # The connection to a proxy over HTTP/3 is checked against both.
        CurlOpt.PROXY_CAINFO: args.ca.encode(),
        CurlOpt.CAINFO: args.ca.encode(),
        CurlOpt.HTTPPROXYTUNNEL: 1,
        CurlOpt.PROXYHEADER: headers,
        # Fields for the proxy are not for the server behind it.
        CurlOpt.HEADEROPT: 1,
    })
    print("fetched", *statuses, error or "", flush=True)
    with open(args.arrived, "wb") as file:
        file.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
