package sctp

import (
	"bytes"
	"net"
	"os"
	"testing"
	"time"
)

func TestPacketsHaveTheFormatOfRFC9260(t *testing.T) {
	init := packet{from: 40000, to: 80, tag: 0x01020304, kind: initiation}.encode()
	want := []byte{
		0x9c, 0x40, 0x00, 0x50, 0, 0, 0, 0, 0x7f, 0x35, 0x92, 0x4f, // the checksum is CRC32c
		1, 0, 0, 20, 1, 2, 3, 4, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1,
	}
	if !bytes.Equal(init, want) {
		t.Errorf("INIT % x, want % x", init, want)
	}
	ack := packet{from: 80, to: 40000, verification: 7, tag: 9, kind: acknowledgement, cookie: []byte("pod-1")}
	got, ok := decode(ack.encode())
	if !ok || got.from != 80 || got.to != 40000 || got.verification != 7 || got.tag != 9 || string(got.cookie) != "pod-1" {
		t.Errorf("%+v, want %+v", got, ack)
	}
	for length := range len(ack.encode()) {
		if _, ok := decode(ack.encode()[:length]); ok && length < commonHeader+chunkHeader+parameterHeader+5 {
			t.Errorf("%d bytes of an INIT ACK are taken for one", length)
		}
	}
}

func TestServerAnswersAtItsPort(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for raw sockets")
	}
	for _, address := range []string{"127.0.0.1:4000", "[::1]:4000"} {
		server, err := Listen(t.Context(), address)
		if err != nil {
			t.Skip(err) // a container without CAP_NET_RAW, or without IPv6
		}
		served := make(chan error, 1)
		go func() {
			served <- server.Serve(func(client net.Addr) []byte { return []byte("for " + client.String()) })
		}()
		conn, err := Dial(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		host, _, _ := net.SplitHostPort(address)
		if cookie, err := conn.Init(time.Now().Add(time.Minute)); err != nil || string(cookie) != "for "+host {
			t.Errorf("%s answers %q, %v", address, cookie, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
