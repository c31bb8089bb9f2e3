package main

import (
	"encoding/binary"
	"net/netip"
)

// Protocols of IP.
const (
	icmp         = 1
	userDatagram = 17
	icmpv6       = 58
)

// ourPort is where UDP comes from.
const ourPort = 40000

func headerOf(address netip.Addr) int {
	if address.Is4() {
		return 20
	}
	return 40
}

// filling is what packet `number` carries behind `before` bytes of headers.
func filling(before, number int) []byte {
	longest := *size - before
	length := 8 + number*37%(longest-7)
	if number == *count-1 {
		length = longest
	}
	content := make([]byte, length)
	binary.BigEndian.PutUint64(content, uint64(number))
	for at := 8; at < length; at++ {
		content[at] = byte(at*7 + number)
	}
	return content
}

func turn(content []byte) {
	for at := 8; at < len(content); at++ {
		content[at] ^= 0xff
	}
}

// pings makes an echo request, and what an answer to it has behind the header of IP.
func pings(from, to netip.Addr, number int) (packet, back []byte) {
	request, answer, protocol := byte(8), byte(0), byte(icmp)
	if from.Is6() {
		request, answer, protocol = 128, 129, icmpv6
	}
	message := func(kind byte, from, to netip.Addr) []byte {
		content := append([]byte{kind, 0, 0, 0, 0x61, 0x62, 0, 0}, filling(headerOf(from)+8, number)...)
		binary.BigEndian.PutUint16(content[6:], uint16(number))
		sum := uint32(0)
		if protocol == icmpv6 {
			sum = pseudo(from, to, protocol, len(content))
		}
		binary.BigEndian.PutUint16(content[2:], checksum(sum, content))
		return content
	}
	return ip(from, to, protocol, message(request, from, to)), message(answer, to, from)
}

// datagrams makes one of UDP, and what its answer has behind the header of IP.
func datagrams(from, to netip.Addr, port uint16, number int) (packet, back []byte) {
	message := func(from, to netip.Addr, fromPort, toPort uint16, content []byte) []byte {
		all := make([]byte, 8, 8+len(content))
		binary.BigEndian.PutUint16(all, fromPort)
		binary.BigEndian.PutUint16(all[2:], toPort)
		all = append(all, content...)
		binary.BigEndian.PutUint16(all[4:], uint16(len(all)))
		sum := checksum(pseudo(from, to, userDatagram, len(all)), all)
		if sum == 0 {
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(all[6:], sum)
		return all
	}
	content := filling(headerOf(from)+8, number)
	packet = ip(from, to, userDatagram, message(from, to, ourPort, port, content))
	turn(content)
	return packet, message(to, from, port, ourPort, content)
}

func ip(from, to netip.Addr, protocol byte, content []byte) []byte {
	header := make([]byte, headerOf(from))
	if from.Is4() {
		header[0], header[8], header[9] = 0x45, byte(*hops), protocol
		binary.BigEndian.PutUint16(header[2:], uint16(len(header)+len(content)))
		copy(header[12:], from.AsSlice())
		copy(header[16:], to.AsSlice())
		binary.BigEndian.PutUint16(header[10:], checksum(0, header))
	} else {
		header[0], header[6], header[7] = 0x60, protocol, byte(*hops)
		binary.BigEndian.PutUint16(header[4:], uint16(len(content)))
		copy(header[8:], from.AsSlice())
		copy(header[24:], to.AsSlice())
	}
	return append(header, content...)
}

// pseudo is the sum over the header that checksums of UDP and ICMPv6 cover beside their own.
func pseudo(from, to netip.Addr, protocol byte, length int) uint32 {
	sum := uint32(protocol) + uint32(length)
	for _, address := range [][]byte{from.AsSlice(), to.AsSlice()} {
		for at := 0; at < len(address); at += 2 {
			sum += uint32(binary.BigEndian.Uint16(address[at:]))
		}
	}
	return sum
}

func checksum(sum uint32, content []byte) uint16 {
	for at := 0; at+1 < len(content); at += 2 {
		sum += uint32(binary.BigEndian.Uint16(content[at:]))
	}
	if len(content)%2 == 1 {
		sum += uint32(content[len(content)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func source(packet []byte) netip.Addr      { return address(packet, 12, 8) }
func destination(packet []byte) netip.Addr { return address(packet, 16, 24) }

// address is the one at these places of a header; none if the packet is too short.
func address(packet []byte, v4, v6 int) netip.Addr {
	at, length := v4, 4
	if len(packet) > 0 && packet[0]>>4 == 6 {
		at, length = v6, 16
	}
	if len(packet) < at+length {
		return netip.Addr{}
	}
	found, _ := netip.AddrFromSlice(packet[at : at+length])
	return found
}

// icmpError is the type and code of an ICMP error, if a packet is one.
func icmpError(packet []byte) (kind, code byte, is bool) {
	from := source(packet)
	if !from.IsValid() || len(packet) < headerOf(from)+2 {
		return 0, 0, false
	}
	message := packet[headerOf(from):]
	kind, code = message[0], message[1]
	if from.Is4() {
		return kind, code, packet[9] == icmp && kind != 0 && kind != 8
	}
	return kind, code, packet[6] == icmpv6 && kind < 128
}
