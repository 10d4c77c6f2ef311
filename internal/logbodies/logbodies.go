// Package logbodies keeps the bodies of requests and responses out of logs: client-go logs
// them with -v=8 and higher, and they have secrets.
package logbodies

import (
	"bytes"
	"io"
)

// Drop returns a writer of whole log entries, in text or JSON, that drops those of client-go
// which have a body.
func Drop(out io.Writer) io.Writer { return dropper{out} }

type dropper struct{ out io.Writer }

// begins are how such an entry begins, after its header.
var begins = [][]byte{
	[]byte(`] "Request Body" `), []byte(`] "Response Body" `),
	[]byte(`"msg":"Request Body",`), []byte(`"msg":"Response Body",`),
}

// headerLimit is more than the longest header of an entry: level, time, process, file and line.
const headerLimit = 256

// Write expects one entry, as loggers write them.
func (d dropper) Write(entry []byte) (int, error) {
	begin := entry[:min(len(entry), headerLimit)]
	for _, body := range begins {
		if bytes.Contains(begin, body) {
			return len(entry), nil
		}
	}
	return d.out.Write(entry)
}
