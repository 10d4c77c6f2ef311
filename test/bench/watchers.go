package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/rest"
)

// watchers are watches of one collection on their own HTTP/2 connection. One
// goroutine reads the frames of all of them: a client with a goroutine and a pipe
// for each would use as much CPU time as the measured server.
type watchers struct {
	conn    net.Conn
	framer  *http2.Framer
	partial map[uint32][]byte // of an event, by stream
}

// openWatches opens n watches of the path in JSON. The context bounds the
// dialling; close ends the watches.
func openWatches(ctx context.Context, config *rest.Config, path string, n int) (*watchers, error) {
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	tlsConfig.NextProtos = []string{http2.NextProtoTLS}
	conn, err := (&tls.Dialer{Config: tlsConfig}).DialContext(ctx, "tcp", server.Host)
	if err != nil {
		return nil, err
	}
	w := &watchers{conn: conn, framer: http2.NewFramer(conn, bufio.NewReaderSize(conn, 64<<10)), partial: map[uint32][]byte{}}
	w.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	w.framer.SetReuseFrames()
	if err := w.begin(server.Host, path, n); err != nil {
		conn.Close()
		return nil, err
	}
	return w, nil
}

// begin sends the connection's preface and the requests.
func (w *watchers) begin(host, path string, n int) error {
	// The windows are larger than all events of a measure together, so no window
	// update is needed.
	const window = 1<<31 - 1
	if _, err := w.conn.Write([]byte(http2.ClientPreface)); err != nil {
		return err
	}
	if err := w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		return err
	}
	if err := w.framer.WriteWindowUpdate(0, window-1<<16); err != nil {
		return err
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := range n {
		block.Reset()
		for _, field := range [][2]string{
			{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", path}, {"accept", jsonType},
		} {
			if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
				return err
			}
		}
		id := uint32(2*i + 1) //nolint:gosec // a connection has some dozens of streams
		if err := w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
			return err
		}
	}
	return nil
}

// read calls received with each event and its watch until received returns false,
// or until the connection or a watch ends. The event is only valid during the call.
func (w *watchers) read(received func(watch uint32, event []byte) (more bool, err error)) error {
	for {
		frame, err := w.framer.ReadFrame()
		if err != nil {
			return err
		}
		switch f := frame.(type) {
		case *http2.DataFrame:
			more, err := w.data(f, received)
			if err != nil || !more {
				return err
			}
		case *http2.MetaHeadersFrame:
			if status := f.PseudoValue("status"); status != "200" {
				return fmt.Errorf("watch: status %s", status)
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = w.framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = w.framer.WritePing(true, f.Data)
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return fmt.Errorf("the server ends a watch: %v", f)
		}
		if err != nil {
			return err
		}
	}
}

// data splits a frame into events, each of which ends with its only newline.
func (w *watchers) data(f *http2.DataFrame, received func(uint32, []byte) (bool, error)) (more bool, err error) {
	if f.StreamEnded() {
		return false, fmt.Errorf("the server ends a watch with %q", f.Data())
	}
	id, data := f.StreamID, f.Data()
	for {
		event, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			w.partial[id] = append(w.partial[id], data...)
			return true, nil
		}
		if before := w.partial[id]; len(before) > 0 {
			event = append(before, event...)
			w.partial[id] = before[:0]
		}
		if more, err := received(id, event); err != nil || !more {
			return false, err
		}
		data = rest
	}
}

func (w *watchers) close() { w.conn.Close() }
