// Command connect-ip-go is connect-ip-go as a client of a proxy for IP (RFC 9484), and as such a proxy.
//
//	connect-ip-go learn PROXY INVITATION -ca FILE [-stranger]
//	connect-ip-go ping PROXY INVITATION -ca FILE -target IP [-count N] [-size N] [-hops N]
//	connect-ip-go udp PROXY INVITATION -ca FILE -target IP [-count N] [-size N] [-port PORT]
//	connect-ip-go serve ADDRESS -cert FILE -key FILE -device NAME -assign IP
//
// A client has no device: packets are made here, and what comes back is looked at. `learn` says what the
// proxy assigns and advertises, unasked, asked and on a second request. `ping` and `udp` send packets
// of one protocol; without a port, UDP is served at the target, which is an address of this host.
// `serve` carries packets between a TUN device that it makes and one client, whose address is IP. What
// happened goes to standard output, one fact a line.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	connectip "github.com/quic-go/connect-ip-go"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/yosida95/uritemplate/v3"
)

const (
	// Everything here takes seconds.
	patience = 50 * time.Second
	// How long a packet may take before it is sent again: nothing loses any here.
	late = 3 * time.Second
	// Packets under way at a time: their queue takes 32.
	window = 16
)

var (
	ca       = flag.String("ca", "", "certificates to believe")
	target   = flag.String("target", "", "address to send to")
	port     = flag.Uint("port", 0, "port of the target that somebody else has, or nobody")
	count    = flag.Int("count", 1, "packets")
	size     = flag.Int("size", 100, "bytes of the longest packet")
	hops     = flag.Int("hops", 64, "routers that a packet passes")
	stranger = flag.Bool("stranger", false, "show no credential")
	cert     = flag.String("cert", "", "certificates of the proxy")
	key      = flag.String("key", "", "and its private key")
	device   = flag.String("device", "", "name of the proxy's device")
	assign   = flag.String("assign", "", "address of the proxy's client")
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "connect-ip-go: the head of main.go says what it takes")
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
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

// client is a connection to the proxy, and what shows who this is.
type client struct {
	http   *http3.ClientConn
	origin string
	bearer string
}

func run(ctx context.Context, what, proxy, invitation string) error {
	pem, err := os.ReadFile(*ca)
	if err != nil {
		return err
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	_, proxyPort, err := net.SplitHostPort(proxy)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h3"}}
	quicConfig := &quic.Config{EnableDatagrams: true, InitialPacketSize: 1400}
	conn, err := quic.DialAddr(ctx, proxy, config, quicConfig)
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0x100, "")
	c := &client{
		http:   (&http3.Transport{EnableDatagrams: true}).NewClientConn(conn),
		origin: "https://localhost:" + proxyPort,
		bearer: "Bearer " + base64.RawURLEncoding.EncodeToString(secret),
	}
	if !*stranger {
		if err := c.join(ctx, invitation); err != nil {
			return err
		}
	}
	tunnel, err := c.open(ctx)
	if tunnel == nil {
		return err
	}
	defer tunnel.conn.Close()
	switch what {
	case "learn":
		return learn(ctx, c, tunnel)
	case "ping":
		return ping(tunnel)
	case "udp":
		return udp(tunnel)
	}
	return fmt.Errorf("there is no %q", what)
}

// join makes the credential known, on the connection that carries packets then.
func (c *client) join(ctx context.Context, invitation string) error {
	url := c.origin + "/.well-known/anabranch/tunnel"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("authorization", c.bearer)
	request.Header.Set("anabranch-invitation", invitation)
	request.Header.Set("anabranch-name", "connect-ip-go")
	response, err := c.http.RoundTrip(request)
	if err != nil {
		return err
	}
	fmt.Println("join", response.StatusCode)
	return response.Body.Close()
}

// tunnel is one request, with the addresses it has been given.
type tunnel struct {
	conn      *connectip.Conn
	addresses []netip.Addr
	// What comes, until the request ends.
	packets chan []byte
}

// open asks for all of IP. There is no tunnel and no error if the proxy refuses.
func (c *client) open(ctx context.Context) (*tunnel, error) {
	template, err := uritemplate.New(c.origin + "/.well-known/masque/ip/*/*/")
	if err != nil {
		return nil, err
	}
	request, err := connectip.NewRequest(ctx, template)
	if err != nil {
		return nil, err
	}
	if !*stranger {
		request.Header().Set("authorization", c.bearer)
	}
	conn, response, err := connectip.NewClientConn(c.http).Dial(request)
	if response == nil {
		return nil, err
	}
	fmt.Println("answer", response.StatusCode)
	if err != nil {
		return nil, nil
	}
	fmt.Println("capsule-protocol", response.Header.Get("capsule-protocol"))
	t := &tunnel{conn: conn, packets: make(chan []byte, 4*window)}
	assigned, err := conn.ReceiveAddressAssignment(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range assigned {
		fmt.Println("assigned", one.IPPrefix, "for request", one.RequestID)
		t.addresses = append(t.addresses, one.IPPrefix.Addr())
	}
	routes, err := conn.Routes(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range routes {
		fmt.Println("route", one.StartIP, one.EndIP, "protocol", one.IPProtocol)
	}
	go t.receive()
	return t, nil
}

func (t *tunnel) receive() {
	defer close(t.packets)
	for {
		buffer := make([]byte, 2048)
		length, err := t.conn.ReadPacket(buffer)
		if err != nil {
			return
		}
		t.packets <- buffer[:length]
	}
}

// learn asks for addresses, and then by another request.
func learn(ctx context.Context, c *client, t *tunnel) error {
	wanted := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/32"), netip.MustParsePrefix("::/128")}
	ids, err := t.conn.RequestAddresses(wanted)
	if err != nil {
		return err
	}
	assigned, err := t.conn.ReceiveAddressAssignment(ctx)
	if err != nil {
		return err
	}
	if len(assigned) != len(ids) {
		return fmt.Errorf("%d answers to %d requests", len(assigned), len(ids))
	}
	for _, one := range assigned {
		fmt.Println("asked", one.IPPrefix, "for request", one.RequestID)
	}
	if err := t.conn.Close(); err != nil {
		return err
	}
	again, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer again.conn.Close()
	for at, one := range again.addresses {
		if one != t.addresses[at] {
			return fmt.Errorf("%s became %s", t.addresses[at], one)
		}
	}
	fmt.Println("the same addresses again")
	return nil
}

// ends finds who sends to whom.
func (t *tunnel) ends() (netip.Addr, netip.Addr, error) {
	to, err := netip.ParseAddr(*target)
	if err != nil {
		return to, to, err
	}
	for _, own := range t.addresses {
		if own.Is4() == to.Is4() {
			return own, to, nil
		}
	}
	return to, to, fmt.Errorf("there is no address to send to %s from", to)
}

func ping(t *tunnel) error {
	from, to, err := t.ends()
	if err != nil {
		return err
	}
	return t.exchange(func(number int) ([]byte, func([]byte) bool) {
		sent, back := pings(from, to, number)
		return sent, func(packet []byte) bool { return isAnswer(packet, to, from, back) }
	})
}

func udp(t *tunnel) error {
	from, to, err := t.ends()
	if err != nil {
		return err
	}
	toPort := uint16(*port)
	if toPort == 0 {
		server, err := net.ListenPacket("udp", netip.AddrPortFrom(to, 0).String())
		if err != nil {
			return err
		}
		defer server.Close()
		toPort = server.LocalAddr().(*net.UDPAddr).AddrPort().Port()
		go reflect(server)
	}
	return t.exchange(func(number int) ([]byte, func([]byte) bool) {
		sent, back := datagrams(from, to, toPort, number)
		return sent, func(packet []byte) bool { return isAnswer(packet, to, from, back) }
	})
}

// reflect sends back what it gets, turned round, so that nothing else can. It says who sent it.
func reflect(server net.PacketConn) {
	buffer := make([]byte, 65536)
	for isFirst := true; ; isFirst = false {
		length, from, err := server.ReadFrom(buffer)
		if err != nil {
			return
		}
		if isFirst {
			fmt.Println("seen from", from.(*net.UDPAddr).IP)
		}
		turn(buffer[:length])
		_, _ = server.WriteTo(buffer[:length], from)
	}
}

// exchange sends a few packets and waits for the answers to all of them, again and again. An ICMP
// error instead is said, and ends it.
func (t *tunnel) exchange(make func(int) ([]byte, func([]byte) bool)) error {
	again := 0
	for begin := 0; begin < *count; begin += window {
		missing := map[int]func([]byte) bool{}
		for round := 0; round == 0 || len(missing) > 0; round++ {
			if round == 5 {
				return fmt.Errorf("%d packets are never answered", len(missing))
			}
			again += len(missing)
			for number := begin; number < min(begin+window, *count); number++ {
				if round > 0 && missing[number] == nil {
					continue
				}
				packet, answers := make(number)
				missing[number] = answers
				if own, err := t.conn.WritePacket(packet); err != nil || own != nil {
					return fmt.Errorf("packet %d is not sent: %v %v", number, own, err)
				}
			}
			if isOver, err := t.collect(missing, again > 0); err != nil || isOver {
				return err
			}
		}
	}
	fmt.Println("answered", *count, "again", again)
	return nil
}

// collect takes what comes back until nothing is missing, or too late. It returns whether an error
// has come. Anything else is a fault, unless something was sent again.
func (t *tunnel) collect(missing map[int]func([]byte) bool, resent bool) (bool, error) {
	timer := time.After(late)
next:
	for len(missing) > 0 {
		select {
		case <-timer:
			return false, nil
		case packet, open := <-t.packets:
			if !open {
				return false, errors.New("the request ended early")
			}
			for number, answers := range missing {
				if answers(packet) {
					delete(missing, number)
					continue next
				}
			}
			if kind, code, isError := icmpError(packet); isError {
				fmt.Println("error", kind, code, "from", source(packet))
				return true, nil
			}
			if !resent {
				return false, fmt.Errorf("nobody asked for %x", packet[:min(len(packet), 80)])
			}
		}
	}
	return false, nil
}

// isAnswer compares addresses and everything behind the header of IP.
func isAnswer(packet []byte, from, to netip.Addr, content []byte) bool {
	return len(packet) >= headerOf(from) && source(packet) == from && destination(packet) == to &&
		bytes.Equal(packet[headerOf(from):], content)
}
