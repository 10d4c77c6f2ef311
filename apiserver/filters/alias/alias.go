// Package alias lets clients use svc's spelling of the identifiers that
// Kubernetes brands with its own name (document 1, section 2): the protobuf
// media type, the group of the table representation, and the extensions of
// schemas. The rest of the server knows only Kubernetes' spelling.
package alias

import (
	"net/http"
	"strings"
)

const (
	svcProtobuf  = "application/vnd.svc.protobuf"
	kubeProtobuf = "application/vnd.kubernetes.protobuf"

	// tableGroup is a parameter of the media type of tables.
	tableGroup = "g=meta.k8s.io"
	// defaultDomain is the group domain whose spelling is always accepted.
	defaultDomain = "svc.dev"
	kubeDomain    = "k8s.io"
)

// Filter translates requests from svc's spelling to Kubernetes' before they
// reach next, and the content type of the answer back for those clients that
// asked with svc's. A request without an alias costs no allocation. Domain is
// the group domain.
//
// It must surround the whole chain, so that errors, discovery and custom
// resources are reached too.
func Filter(next http.Handler, domain string) http.Handler {
	f := filter{next: next, schemaPaths: []string{schemaPath(kubeDomain)}}
	for _, d := range []string{defaultDomain, domain} {
		if d != kubeDomain {
			f.tableGroups = append(f.tableGroups, "g=meta."+d)
			f.schemaPaths = append(f.schemaPaths, schemaPath(d))
		}
	}
	return f
}

type filter struct {
	next        http.Handler
	tableGroups []string
	schemaPaths []string
}

// ServeHTTP implements http.Handler.
func (f filter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	accept, acceptAliased := f.translate(r.Header["Accept"])
	contentType, contentTypeAliased := f.translate(r.Header["Content-Type"])
	schema := f.isSchema(r)
	if !acceptAliased && !contentTypeAliased && !schema {
		f.next.ServeHTTP(w, r)
		return
	}
	if acceptAliased && mentions(r.Header["Accept"], svcProtobuf) {
		w = answerAsAsked(w)
	}
	translated := r.WithContext(r.Context())
	translated.Header = r.Header.Clone()
	if acceptAliased {
		translated.Header["Accept"] = accept
	}
	if contentTypeAliased {
		translated.Header["Content-Type"] = contentType
	}
	if schema {
		translateSchema(translated)
	}
	f.next.ServeHTTP(w, translated)
}

// translate returns the header's values in Kubernetes' spelling, and whether
// that differs. The values themselves stay as they are.
func (f filter) translate(values []string) ([]string, bool) {
	translated, changed := values, false
	for i, value := range values {
		v := strings.ReplaceAll(value, svcProtobuf, kubeProtobuf)
		for _, group := range f.tableGroups {
			v = replaceParameter(v, group, tableGroup)
		}
		if v == value {
			continue
		}
		if !changed {
			translated, changed = append([]string(nil), values...), true
		}
		translated[i] = v
	}
	return translated, changed
}

// replaceParameter replaces a parameter of the media types in a header.
func replaceParameter(header, parameter, replacement string) string {
	for from := 0; ; {
		i := strings.Index(header[from:], parameter)
		if i < 0 {
			return header
		}
		start, end := from+i, from+i+len(parameter)
		from = end
		startsOne := start > 0 && strings.ContainsRune("; ", rune(header[start-1]))
		endsOne := end == len(header) || strings.ContainsRune("; ,", rune(header[end]))
		if startsOne && endsOne {
			header = header[:start] + replacement + header[end:]
			from = start + len(replacement)
		}
	}
}

func mentions(values []string, s string) bool {
	for _, v := range values {
		if strings.Contains(v, s) {
			return true
		}
	}
	return false
}
