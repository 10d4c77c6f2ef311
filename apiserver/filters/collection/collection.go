// Package collection owns the field metadata.continue of lists (document 1, section
// 2): in a complete list it is empty, but the libraries omit it.
package collection

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// Filter adds the field to the lists in JSON and YAML that next responds with. Their
// bodies must not be compressed yet. (Protobuf always has the field.)
func Filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); !ok || !info.IsResourceRequest || info.Verb != "list" {
			next.ServeHTTP(w, req)
			return
		}
		list := &writer{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(list), req)
		list.finish()
	})
}

// writer adds the field to the beginning of a list in JSON, or the end of one in YAML.
type writer struct {
	http.ResponseWriter
	status int
	begun  bool
	// place returns where the field is to be added to the beginning of a body. It is
	// nil if the body needs no further change.
	place func(head []byte) (at insertion, decided bool)
	head  []byte // not written before place has decided
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	w.status = status
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

// begin selects the change of the body.
func (w *writer) begin() {
	if w.begun {
		return
	}
	w.begun = true
	header := w.Header()
	if w.status != http.StatusOK || header.Get("Content-Encoding") != "" {
		return
	}
	switch contentType := header.Get("Content-Type"); {
	case strings.HasPrefix(contentType, "application/json"):
		w.place = inJSON
	case strings.HasPrefix(contentType, "application/yaml"):
		w.place = inYAML
	default:
		return
	}
	header.Del("Content-Length")
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	w.begin()
	if w.place == nil {
		return w.ResponseWriter.Write(p)
	}
	body := p
	if len(w.head) > 0 {
		body = append(w.head, p...)
	}
	at, decided := w.place(body)
	if !decided {
		w.head = append(w.head, p...)
		return len(p), nil
	}
	w.place, w.head = nil, nil
	return len(p), w.insert(body, at)
}

// Flush implements http.Flusher.
func (w *writer) Flush() {
	w.finish()
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// finish writes what is held back.
func (w *writer) finish() {
	if len(w.head) == 0 {
		return
	}
	head := w.head
	w.place, w.head = nil, nil
	// An error is that of the connection, which the server notices itself.
	_, _ = w.ResponseWriter.Write(head)
}

func (w *writer) insert(body []byte, at insertion) error {
	for _, part := range [][]byte{body[:at.offset], []byte(at.text), body[at.offset:]} {
		if len(part) == 0 {
			continue
		}
		if _, err := w.ResponseWriter.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// insertion is a text, and the offset at which it is missing.
type insertion struct {
	offset int
	text   string
}

// maxHead bounds how far into a list the end of its metadata is looked for, in
// bytes. A continue token is shorter.
const maxHead = 4 << 10

// metadataInJSON is the beginning of a typed list. (Untyped ones have the field.)
var metadataInJSON = regexp.MustCompile(`^\{\s*"kind":\s*"[^"]*",\s*"apiVersion":\s*"[^"]*",\s*"metadata":\s*\{(\s*)([^{}]*?)(\s*)\}`)

// inJSON finds the place for the field in the beginning of a body.
func inJSON(head []byte) (at insertion, decided bool) {
	found := metadataInJSON.FindSubmatchIndex(head[:min(len(head), maxHead)])
	if found == nil {
		// A body without the beginning of a typed list is passed on at once.
		typed := bytes.HasPrefix(head, []byte(`{"kind":`)) || bytes.HasPrefix(head, []byte("{\n  \"kind\":")) || len(head) < len("{\n  \"kind\":")
		return insertion{}, !typed || len(head) >= maxHead
	}
	indent, fields := string(head[found[2]:found[3]]), head[found[4]:found[5]]
	switch {
	case bytes.Contains(fields, []byte(`"continue":`)):
		return insertion{}, true
	case len(fields) == 0:
		return insertion{found[5], `"continue":""`}, true
	case indent == "":
		return insertion{found[5], `,"continue":""`}, true
	}
	return insertion{found[5], "," + indent + `"continue": ""`}, true
}

// inYAML finds the place for the field in a body, which is written as a whole: the
// members of an object are in alphabetical order.
func inYAML(body []byte) (at insertion, decided bool) {
	const metadata, field = "\nmetadata:\n", "  continue:"
	i := bytes.LastIndex(body, []byte(metadata))
	if i < 0 || bytes.HasPrefix(body[i+len(metadata):], []byte(field)) {
		return insertion{}, true
	}
	return insertion{i + len(metadata), field + " \"\"\n"}, true
}
