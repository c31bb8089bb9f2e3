package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	connectip "github.com/quic-go/connect-ip-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/yosida95/uritemplate/v3"
	"golang.org/x/sys/unix"
)

const (
	// How long the proxy serves at most.
	service = 5 * time.Minute
	// The longest packet that is read.
	longest = 65536
)

// proxy is connect-ip-go as a proxy for IP, between its clients and a TUN device of this host. It
// has one address for one client.
type proxy struct {
	ip       connectip.Proxy
	template *uritemplate.Template
	device   *os.File
	address  netip.Addr
}

// serve is a proxy at an address of this host, with a device that somebody else sets up when it is
// there.
func serve(address string) error {
	certificate, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return err
	}
	p := &proxy{}
	if p.address, err = netip.ParseAddr(*assign); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	p.template, err = uritemplate.New("https://localhost:" + port + "/.well-known/masque/ip/*/*/")
	if err != nil {
		return err
	}
	if p.device, err = openDevice(*device); err != nil {
		return err
	}
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	server := http3.Server{
		TLSConfig:       http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate}}),
		EnableDatagrams: true,
		Handler:         p,
	}
	time.AfterFunc(service, func() { server.Close() })
	fmt.Println("listening")
	return server.Serve(socket)
}

// openDevice makes a TUN device of this name, which goes with the process.
func openDevice(name string) (*os.File, error) {
	descriptor, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(descriptor, unix.TUNSETIFF, request); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(descriptor), "/dev/net/tun"), nil
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Println("asked", r.Method, r.Proto, r.Host, r.URL.Path)
	request, err := connectip.ParseProxyRequest(r, p.template)
	if err != nil {
		status := http.StatusBadRequest
		var wrong *connectip.ProxyRequestParseError
		if errors.As(err, &wrong) {
			status = wrong.HTTPStatus
		}
		fmt.Println("refused", status, err)
		w.WriteHeader(status)
		return
	}
	conn, err := p.ip.Proxy(w, request)
	if err == nil {
		err = p.carry(conn)
	}
	fmt.Println("ended", err)
}

// carry tells the client its address and that everything is reached, and carries its packets.
func (p *proxy) carry(conn *connectip.Conn) error {
	defer conn.Close()
	own := []netip.Prefix{netip.PrefixFrom(p.address, p.address.BitLen())}
	if err := conn.AssignAddresses(own); err != nil {
		return err
	}
	everything := connectip.IPRoute{
		StartIP: netip.MustParseAddr("0.0.0.0"),
		EndIP:   netip.MustParseAddr("255.255.255.255"),
	}
	if err := conn.AdvertiseRoute([]connectip.IPRoute{everything}); err != nil {
		return err
	}
	go p.assign(conn)
	go func() {
		packet := make([]byte, longest)
		for {
			length, err := p.device.Read(packet)
			if err != nil {
				return
			}
			// What a client is not to get is dropped there, and said.
			tooLong, err := conn.WritePacket(packet[:length])
			if err != nil {
				return
			}
			if tooLong != nil {
				_, _ = p.device.Write(tooLong)
			}
		}
	}()
	packet := make([]byte, longest)
	for {
		length, err := conn.ReadPacket(packet)
		if err != nil {
			return err
		}
		if _, err := p.device.Write(packet[:length]); err != nil {
			return err
		}
	}
}

// assign answers requests for addresses: there is one of IPv4, and none of IPv6.
func (p *proxy) assign(conn *connectip.Conn) {
	for {
		request, err := conn.ReceiveAddressRequest(context.Background())
		if err != nil {
			return
		}
		// What is left empty is refused.
		answers := make([]netip.Prefix, len(request.Prefixes))
		for at, wanted := range request.Prefixes {
			if wanted.Addr().Is4() {
				answers[at] = netip.PrefixFrom(p.address, 32)
			}
		}
		if err := request.Respond(answers, nil); err != nil {
			fmt.Println("failed", err)
			return
		}
	}
}
