// Command quic-go is quic-go as one end of a transfer: HTTP/3 server of a folder, or client of one
// request.
//
//	quic-go serve ADDRESS ROOT -cert FILE -key FILE [-retry]
//	quic-go get ADDRESS PATH OUTPUT -ca FILE [-hq] [-migrate BYTES] [-put FILE]
//
// What happened goes to standard output, one fact a line.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// Every transfer here takes seconds.
const patience = 50 * time.Second

var (
	cert    = flag.String("cert", "", "certificate of the server")
	key     = flag.String("key", "", "its key")
	ca      = flag.String("ca", "", "certificates to believe")
	retry   = flag.Bool("retry", false, "answer first packets with Retry")
	hq      = flag.Bool("hq", false, "HTTP/0.9 instead of HTTP/3")
	migrate = flag.Int64("migrate", 0, "move to another address after so many bytes")
	put     = flag.String("put", "", "a file to send instead")
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "quic-go: the head of main.go says what it takes")
		os.Exit(2)
	}
	words := os.Args[1:4]
	rest := os.Args[4:]
	if words[0] == "get" && len(rest) > 0 {
		words = append(words, rest[0])
		rest = rest[1:]
	}
	// The error is printed and ends the program.
	_ = flag.CommandLine.Parse(rest)
	time.AfterFunc(patience+10*time.Second, func() { os.Exit(1) })
	var err error
	if words[0] == "serve" {
		err = serve(words[1], words[2])
	} else {
		err = get(words[1], words[2], words[3])
	}
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

func serve(address, root string) error {
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return err
	}
	transport, err := listen(address)
	if err != nil {
		return err
	}
	if *retry {
		transport.VerifySourceAddress = func(net.Addr) bool { return true }
	}
	config := http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}})
	listener, err := transport.ListenEarly(config, &quic.Config{})
	if err != nil {
		return err
	}
	fmt.Println("listening", transport.Conn.LocalAddr())
	files := http.FileServer(http.Dir(root))
	server := &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			files.ServeHTTP(w, r)
			return
		}
		if err := store(filepath.Join(root, filepath.Base(r.URL.Path)), r.Body); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})}
	return server.ServeListener(listener)
}

func store(name string, from io.Reader) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, from)
	return err
}

func listen(address string) (*quic.Transport, error) {
	at, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	socket, err := net.ListenUDP("udp", at)
	if err != nil {
		return nil, err
	}
	return &quic.Transport{Conn: socket}, nil
}

func get(address, path, output string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pem, err := os.ReadFile(*ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h3"}}
	if *hq {
		config.NextProtos = []string{"hq-interop"}
	}
	transport, err := listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	to, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return err
	}
	conn, err := transport.Dial(ctx, to, config, &quic.Config{})
	if err != nil {
		return err
	}
	body, err := ask(ctx, conn, path)
	if err != nil {
		return err
	}
	received, err := read(ctx, conn, body)
	fmt.Println("bytes", len(received))
	if err != nil {
		return err
	}
	if err := conn.CloseWithError(0x100, ""); err != nil {
		return err
	}
	return os.WriteFile(output, received, 0o600)
}

func ask(ctx context.Context, conn *quic.Conn, path string) (io.Reader, error) {
	if *hq {
		stream, err := conn.OpenStreamSync(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := fmt.Fprintf(stream, "GET %s\r\n", path); err != nil {
			return nil, err
		}
		return stream, stream.Close()
	}
	method, content := http.MethodGet, []byte(nil)
	if *put != "" {
		var err error
		if content, err = os.ReadFile(*put); err != nil {
			return nil, err
		}
		method = http.MethodPut
	}
	url := "https://localhost" + path
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	response, err := (&http3.Transport{}).NewClientConn(conn).RoundTrip(request)
	if err != nil {
		return nil, err
	}
	fmt.Println("status", response.StatusCode)
	return response.Body, nil
}

// read takes the whole answer and moves to another address on the way, if that is wanted.
func read(ctx context.Context, conn *quic.Conn, body io.Reader) ([]byte, error) {
	var received bytes.Buffer
	if *migrate > 0 {
		if _, err := io.CopyN(&received, body, *migrate); err != nil {
			return received.Bytes(), err
		}
		if err := move(ctx, conn); err != nil {
			return received.Bytes(), err
		}
	}
	_, err := io.Copy(&received, body)
	return received.Bytes(), err
}

func move(ctx context.Context, conn *quic.Conn) error {
	transport, err := listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	path, err := conn.AddPath(transport)
	if err != nil {
		return err
	}
	if err := path.Probe(ctx); err != nil {
		return err
	}
	if err := path.Switch(); err != nil {
		return err
	}
	fmt.Println("did migrate")
	return nil
}
