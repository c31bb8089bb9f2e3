package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/quic-go/masque-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/yosida95/uritemplate/v3"
)

// How long the proxy serves at most, and how long a target may take to answer.
const (
	service = 5 * time.Minute
	dialing = 10 * time.Second
)

// proxy is masque-go as a proxy for UDP, beside which the server of quic-go has CONNECT for TCP.
type proxy struct {
	masque   masque.Proxy
	template *uritemplate.Template
}

// serve is a proxy at an address of this host, whatever name it is called by.
func serve(address string) error {
	certificate, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return err
	}
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(socket.LocalAddr().String())
	if err != nil {
		return err
	}
	p := &proxy{}
	p.template, err = uritemplate.New("https://localhost:" + port + *udpPath)
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

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Println("asked", r.Method, r.Proto, r.Host)
	for name := range r.Header {
		// What a proxy of others has never heard of.
		if strings.HasPrefix(name, "Anabranch-") || strings.HasPrefix(name, "Dg-") {
			fmt.Println("field", name)
		}
	}
	if *shown != "" && r.Header.Get("Proxy-Authorization") != *shown {
		w.Header().Set("Proxy-Authenticate", "Basic realm=\"proxy\"")
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if r.Proto != "connect-udp" {
		connect(w, r)
		return
	}
	request, err := masque.ParseProxyRequest(r, p.template)
	if err != nil {
		status := http.StatusBadRequest
		var wrong *masque.ProxyRequestParseError
		if errors.As(err, &wrong) {
			status = wrong.HTTPStatus
		}
		fmt.Println("refused", status, err)
		w.WriteHeader(status)
		return
	}
	if err := p.masque.Proxy(w, request); err != nil {
		fmt.Println("refused", err)
	}
}

// connect carries bytes between a request and a TCP connection (RFC 9114, section 4.4).
func connect(w http.ResponseWriter, r *http.Request) {
	target, err := net.DialTimeout("tcp", r.Host, dialing)
	if err != nil {
		fmt.Println("refused", err)
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer target.Close()
	w.WriteHeader(http.StatusOK)
	stream := w.(http3.HTTPStreamer).HTTPStream()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(target, stream)
		_ = target.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(stream, target)
	_ = stream.Close()
	<-done
}
