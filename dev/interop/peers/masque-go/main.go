// Command masque-go is masque-go as a client of a proxy for UDP (RFC 9298), by QUIC datagrams, and as
// such a proxy.
//
//	masque-go echo PROXY INVITATION -ca FILE -at ADDRESS [-as HOST] [-flows N] [-count N] [-size N]
//	masque-go ask PROXY INVITATION -ca FILE -target HOST:PORT [-stranger]
//	masque-go fetch PROXY INVITATION -ca FILE -target HOST:PORT -path PATH -output FILE
//	masque-go serve ADDRESS -cert FILE -key FILE [-shown TEXT] [-udp-path PATH]
//
// `echo` serves UDP at an address of its own, so that nothing of ours is behind the proxy, and sends
// datagrams to itself through it; HOST is what the proxy is told instead of the address. `ask` says
// what one request is answered, and when it ends. `fetch` has QUIC inside QUIC. All take
// `-credential TEXT`, which the proxy knows already. `serve` is a proxy that knows CONNECT, too; TEXT
// is what it wants to see in `proxy-authorization`, PATH a template. What happened goes to standard
// output, one fact a line.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/quic-go/masque-go"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/yosida95/uritemplate/v3"
)

const (
	// Everything here takes seconds.
	patience = 50 * time.Second
	// How long a datagram may take before it is sent again: nothing loses any here.
	late = 3 * time.Second
	// Datagrams of all flows under way at a time: their queue for one flow takes 32.
	window = 16
	// What a datagram begins with: its flow and its number.
	head = 8
)

var (
	ca       = flag.String("ca", "", "certificates to believe")
	at       = flag.String("at", "127.0.0.1", "address to serve UDP at")
	as       = flag.String("as", "", "what the proxy is told instead")
	target   = flag.String("target", "", "host and port of a target that somebody else serves")
	path     = flag.String("path", "/", "what to fetch")
	output   = flag.String("output", "", "where to")
	flows    = flag.Int("flows", 1, "requests at a time, over one connection")
	count    = flag.Int("count", 1, "datagrams of each")
	size     = flag.Int("size", 1200, "bytes of the longest")
	stranger = flag.Bool("stranger", false, "show no credential")
	known    = flag.String("credential", "", "show this one, without asking to be let in")
	cert     = flag.String("cert", "", "certificates of the proxy")
	key      = flag.String("key", "", "and its private key")
	shown    = flag.String("shown", "", "what clients have to show the proxy")
	udpPath  = flag.String("udp-path", "/.well-known/masque/udp/{target_host}/{target_port}/",
		"template of the proxy, without its beginning")
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "masque-go: the head of main.go says what it takes")
		os.Exit(2)
	}
	if os.Args[1] == "serve" {
		_ = flag.CommandLine.Parse(os.Args[3:])
		fmt.Println("failed", serve(os.Args[2]))
		os.Exit(1)
	}
	// The error is printed and ends the program.
	_ = flag.CommandLine.Parse(os.Args[4:])
	time.AfterFunc(patience+10*time.Second, func() { os.Exit(1) })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	work := map[string]func(context.Context, *client) error{"echo": echo, "ask": ask, "fetch": fetch}
	err := fmt.Errorf("there is no %q", os.Args[1])
	if work[os.Args[1]] != nil {
		err = run(ctx, os.Args[2], os.Args[3], work[os.Args[1]])
	}
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

// client is a connection to the proxy, and what shows who this is.
type client struct {
	proxy  *masque.ClientConn
	roots  *x509.CertPool
	bearer string
	port   string
}

func run(ctx context.Context, proxy, invitation string, work func(context.Context, *client) error) error {
	pem, err := os.ReadFile(*ca)
	if err != nil {
		return err
	}
	c := &client{roots: x509.NewCertPool(), bearer: "Bearer " + *known}
	c.roots.AppendCertsFromPEM(pem)
	if _, c.port, err = net.SplitHostPort(proxy); err != nil {
		return err
	}
	if !*stranger && *known == "" {
		if err := c.join(ctx, proxy, invitation); err != nil {
			return err
		}
	}
	conn, err := c.dial(ctx, proxy)
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0x100, "")
	if c.proxy, err = (&masque.Transport{}).NewClientConn(conn); err != nil {
		return err
	}
	return work(ctx, c)
}

func (c *client) dial(ctx context.Context, proxy string) (*quic.Conn, error) {
	config := &tls.Config{RootCAs: c.roots, ServerName: "localhost", NextProtos: []string{"h3"}}
	return quic.DialAddr(ctx, proxy, config, &quic.Config{EnableDatagrams: true, InitialPacketSize: 1350})
}

// join makes a credential known: the library cannot ask for anything but targets.
func (c *client) join(ctx context.Context, proxy, invitation string) error {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	c.bearer += base64.RawURLEncoding.EncodeToString(secret)
	conn, err := c.dial(ctx, proxy)
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0x100, "")
	url := "https://localhost:" + c.port + "/.well-known/anabranch/tunnel"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("authorization", c.bearer)
	request.Header.Set("anabranch-invitation", invitation)
	request.Header.Set("anabranch-name", "masque-go")
	response, err := (&http3.Transport{}).NewClientConn(conn).RoundTrip(request)
	if err != nil {
		return err
	}
	fmt.Println("join", response.StatusCode)
	return response.Body.Close()
}

// open asks for a target. The response is there whenever the proxy has answered.
func (c *client) open(ctx context.Context, target string) (*masque.Conn, *http.Response, error) {
	template, err := uritemplate.New("https://localhost:" + c.port +
		"/.well-known/masque/udp/{target_host}/{target_port}/")
	if err != nil {
		return nil, nil, err
	}
	request, err := masque.NewRequest(ctx, template, target)
	if err != nil {
		return nil, nil, err
	}
	if !*stranger {
		request.Header().Set("authorization", c.bearer)
	}
	return c.proxy.Dial(request)
}

func ask(ctx context.Context, c *client) error {
	conn, response, err := c.open(ctx, *target)
	if response == nil {
		return err
	}
	fmt.Println("answer", response.StatusCode)
	fmt.Println("proxy-status", response.Header.Get("proxy-status"))
	if err != nil {
		return nil
	}
	defer conn.Close()
	if _, err := conn.WriteTo([]byte("is anybody there?"), nil); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience / 2)); err != nil {
		return err
	}
	_, _, err = conn.ReadFrom(make([]byte, 1500))
	if errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
		return fmt.Errorf("the request did not end: %v", err)
	}
	fmt.Println("ended", err)
	return nil
}

func echo(ctx context.Context, c *client) error {
	server, err := net.ListenPacket("udp", net.JoinHostPort(*at, "0"))
	if err != nil {
		return err
	}
	defer server.Close()
	go reflect(server)
	host, port, err := net.SplitHostPort(server.LocalAddr().String())
	if err != nil {
		return err
	}
	if *as != "" {
		host = *as
	}
	conns := make([]*masque.Conn, *flows)
	for flow := range conns {
		conn, response, err := c.open(ctx, net.JoinHostPort(host, port))
		if err != nil {
			return err
		}
		defer conn.Close()
		conns[flow] = conn
		if flow == 0 {
			fmt.Println("answer", response.StatusCode)
			fmt.Println("capsule-protocol", response.Header.Get("capsule-protocol"))
		}
		if conn.RemoteAddr().String() != server.LocalAddr().String() {
			return fmt.Errorf("the next hop is %s, not %s", conn.RemoteAddr(), server.LocalAddr())
		}
	}
	fmt.Println("next-hop is the target")
	var wait sync.WaitGroup
	again, failures := make([]int, *flows), make([]error, *flows)
	limit := max(1, window / *flows)
	for flow, conn := range conns {
		wait.Go(func() { again[flow], failures[flow] = exchange(conn, flow, limit) })
	}
	wait.Wait()
	sum := 0
	for _, one := range again {
		sum += one
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	fmt.Println("echoed", *flows**count, "again", sum)
	return nil
}

// reflect sends back what it gets, turned round behind its head, so that nothing else can.
func reflect(server net.PacketConn) {
	buffer := make([]byte, 65536)
	for {
		length, from, err := server.ReadFrom(buffer)
		if err != nil {
			return
		}
		turn(buffer[:length])
		_, _ = server.WriteTo(buffer[:length], from)
	}
}

func turn(payload []byte) {
	for at := head; at < len(payload); at++ {
		payload[at] ^= 0xff
	}
}

// payload is the same for a flow and number each time, and for no other.
func payload(flow, number int) []byte {
	content := make([]byte, head+(number*37)%(*size-head+1))
	if number == *count-1 {
		content = make([]byte, *size)
	}
	binary.BigEndian.PutUint32(content, uint32(flow))
	binary.BigEndian.PutUint32(content[4:], uint32(number))
	for at := head; at < len(content); at++ {
		content[at] = byte(at*7 + flow*31 + number)
	}
	return content
}

// exchange sends a few datagrams and waits for all of them, again and again. It returns how many it
// had to send twice.
func exchange(conn *masque.Conn, flow, limit int) (int, error) {
	received := make(chan []byte, 4*window)
	go func() {
		defer close(received)
		for {
			buffer := make([]byte, 2048)
			length, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			received <- buffer[:length]
		}
	}()
	again := 0
	for begin := 0; begin < *count; begin += limit {
		missing := map[int]bool{}
		for number := begin; number < min(begin+limit, *count); number++ {
			missing[number] = true
		}
		for round := 0; len(missing) > 0; round++ {
			if round == 5 {
				return again, fmt.Errorf("flow %d: %d datagrams never come back", flow, len(missing))
			}
			if round > 0 {
				again += len(missing)
			}
			for number := range missing {
				if _, err := conn.WriteTo(payload(flow, number), nil); err != nil {
					return again, err
				}
			}
			if err := collect(received, flow, missing, round > 0 || again > 0); err != nil {
				return again, err
			}
		}
	}
	return again, nil
}

// collect takes what comes back until nothing is missing, or too late. Each is expected once, unless
// something was sent again.
func collect(received <-chan []byte, flow int, missing map[int]bool, resent bool) error {
	timer := time.After(late)
	for len(missing) > 0 {
		select {
		case <-timer:
			return nil
		case content, open := <-received:
			if !open {
				return errors.New("the request ended early")
			}
			if len(content) < head {
				return fmt.Errorf("flow %d: %d bytes came back", flow, len(content))
			}
			number := int(binary.BigEndian.Uint32(content[4:]))
			if !missing[number] && !resent {
				return fmt.Errorf("flow %d: datagram %d came twice", flow, number)
			}
			turn(content)
			if !bytes.Equal(content, payload(flow, number)) {
				return fmt.Errorf("flow %d: datagram %d has other content", flow, number)
			}
			delete(missing, number)
		}
	}
	return nil
}

func fetch(ctx context.Context, c *client) error {
	conn, response, err := c.open(ctx, *target)
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Println("answer", response.StatusCode)
	inner := &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.roots},
		Dial: func(ctx context.Context, _ string, tls *tls.Config, config *quic.Config) (*quic.Conn, error) {
			config = config.Clone()
			// It sets options of sockets, and this is none.
			config.DisablePathMTUDiscovery = true
			return quic.DialEarly(ctx, conn, conn.RemoteAddr(), tls, config)
		},
	}
	defer inner.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+*target+*path, nil)
	if err != nil {
		return err
	}
	answer, err := inner.RoundTrip(request)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(answer.Body)
	fmt.Println("fetched", answer.StatusCode, "bytes", len(content))
	if err != nil {
		return err
	}
	return os.WriteFile(*output, content, 0o600)
}
