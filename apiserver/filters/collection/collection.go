// Package collection owns the field metadata.continue of lists (document 1, section
// 2): in a complete list it is empty, but the libraries omit it.
package collection

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apiserver/filters/rewrite"
)

// Filter adds the field to the lists in JSON and YAML that next responds with. Their
// bodies must not be compressed yet. (Protobuf always has the field.)
func Filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); !ok || !info.IsResourceRequest || info.Verb != "list" {
			next.ServeHTTP(w, req)
			return
		}
		rewrite.Serve(w, req, next, addition)
	})
}

// addition returns what adds the field to the beginning of a list in JSON, or to the
// end of one in YAML.
func addition(w io.Writer, status int, header http.Header) rewrite.Body {
	if status != http.StatusOK || header.Get("Content-Encoding") != "" {
		return nil
	}
	switch contentType := header.Get("Content-Type"); {
	case strings.HasPrefix(contentType, "application/json"):
		return &list{to: w, place: inJSON}
	case strings.HasPrefix(contentType, "application/yaml"):
		return &list{to: w, place: inYAML}
	}
	return nil
}

// list is the body of a list.
type list struct {
	to io.Writer
	// place returns where the field is to be added to the beginning of a body. It is
	// nil if the body needs no further change.
	place func(head []byte) (at insertion, decided bool)
	head  []byte // not written before place has decided
}

// Write implements io.Writer.
func (l *list) Write(p []byte) (int, error) {
	if l.place == nil {
		return l.to.Write(p)
	}
	body := p
	if len(l.head) > 0 {
		body = append(l.head, p...)
	}
	at, decided := l.place(body)
	if !decided {
		l.head = append(l.head, p...)
		return len(p), nil
	}
	l.place, l.head = nil, nil
	return len(p), l.insert(body, at)
}

// Flush implements rewrite.Body: what is held back is written without the field.
func (l *list) Flush() error {
	if len(l.head) == 0 {
		return nil
	}
	head := l.head
	l.place, l.head = nil, nil
	_, err := l.to.Write(head)
	return err
}

// Close implements io.Closer.
func (l *list) Close() error { return l.Flush() }

func (l *list) insert(body []byte, at insertion) error {
	for _, part := range [][]byte{body[:at.offset], []byte(at.text), body[at.offset:]} {
		if len(part) == 0 {
			continue
		}
		if _, err := l.to.Write(part); err != nil {
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
