// Package alias owns the translation of svc's spelling of the identifiers that
// Kubernetes brands with its own name (document 1, section 2): the protobuf media
// type, the groups in the parameters of media types, and the extensions of schemas.
// The response uses the spelling of the request. The rest of the server uses only
// Kubernetes' spelling.
package alias

import (
	"iter"
	"net/http"
	"slices"
	"strings"

	"svc.dev/svc/apiserver/filters/rewrite"
)

const (
	svcProtobuf  = "application/vnd.svc.protobuf"
	kubeProtobuf = "application/vnd.kubernetes.protobuf"

	// defaultDomain is the group domain whose spelling is always accepted.
	defaultDomain = "svc.dev"
	kubeDomain    = "k8s.io"
)

// groups are those that a media type may name (g=), without their domain: of
// tables and metadata, and of aggregated discovery.
var groups = []string{"meta", discovery}

// Filter translates requests from svc's spelling to Kubernetes', and the responses
// back for clients that use svc's. A request without an alias costs no allocation.
// domain is the group domain, and served are the versions of aggregated discovery.
//
// It must enclose all filters that write responses, so that it also applies to
// errors, discovery and custom resources.
func Filter(next http.Handler, domain string, served Discovery) http.Handler {
	f := filter{next: next, discovery: served, schemaPaths: []string{schemaPath(kubeDomain)}}
	for _, d := range slices.Compact([]string{defaultDomain, domain}) {
		if d == kubeDomain {
			continue
		}
		f.schemaPaths = append(f.schemaPaths, schemaPath(d))
		for _, group := range groups {
			f.names = append(f.names, name{svc: group + "." + d, kube: group + "." + kubeDomain})
		}
	}
	return f
}

type filter struct {
	next        http.Handler
	names       []name
	discovery   Discovery
	schemaPaths []string
}

// name is a group in both spellings.
type name struct{ svc, kube string }

// ServeHTTP implements http.Handler.
func (f filter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	accept, acceptAliased := f.translate(r.Header["Accept"])
	contentType, contentTypeAliased := f.translate(r.Header["Content-Type"])
	schema := f.isSchema(r)
	if !acceptAliased && !contentTypeAliased && !schema && hasKnownTypes(r) {
		f.next.ServeHTTP(w, r)
		return
	}
	back := &response{}
	if acceptAliased {
		back.spelling = f.spellingOf(r.Header["Accept"])
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
		back.schema = translateSchema(translated)
	}
	if schema || len(back.spelling.texts) > 0 {
		// What is compressed cannot be translated.
		delete(translated.Header, "Accept-Encoding")
	}
	rewrite.Serve(w, translated, f.next, back.translate)
}

// translate returns a header's values in Kubernetes' spelling, and whether
// that differs. The values themselves stay as they are.
func (f filter) translate(values []string) ([]string, bool) {
	translated, changed := values, false
	for i, value := range values {
		v := strings.ReplaceAll(value, svcProtobuf, kubeProtobuf)
		for _, n := range f.names {
			v = replaceParameter(v, "g=", n.svc, n.kube)
		}
		v, _ = f.discovery.translate(v)
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

// spellingOf returns the spelling of an Accept header that translate changes. A
// header with both spellings of a group gets Kubernetes'.
func (f filter) spellingOf(accept []string) spelling {
	header := strings.Join(accept, ",")
	s := spelling{protobuf: strings.Contains(header, svcProtobuf)}
	discoveryGroup := discovery + "." + kubeDomain
	for _, n := range f.names {
		if !hasParameter(header, "g=", n.svc) || hasParameter(header, "g=", n.kube) {
			continue
		}
		s.addGroup(n.kube, n.svc)
		if strings.HasPrefix(n.kube, discovery) {
			discoveryGroup = n.svc
		}
	}
	for _, value := range accept {
		for _, n := range f.names {
			value = replaceParameter(value, "g=", n.svc, n.kube)
		}
		if _, beta := f.discovery.translate(value); beta {
			s.addVersion(discoveryGroup)
			break
		}
	}
	return s
}

// replaceParameter replaces the value of a parameter, whose key ends with the
// equals sign, of the media types in a header. The header of a client that is not
// authenticated may have 1 MiB: it is copied once, however many values are replaced.
func replaceParameter(header, key, value, replacement string) string {
	var replaced strings.Builder
	from := 0
	for start := range parameters(header, key, value) {
		replaced.WriteString(header[from:start])
		replaced.WriteString(replacement)
		from = start + len(value)
	}
	if from == 0 {
		return header
	}
	replaced.WriteString(header[from:])
	return replaced.String()
}

// parameters yields where each value of a parameter begins in a header.
func parameters(header, key, value string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for from := 0; ; {
			i := strings.Index(header[from:], value)
			if i < 0 {
				return
			}
			start, end := from+i, from+i+len(value)
			if isParameter(header, key, start, end) && !yield(start) {
				return
			}
			from = end
		}
	}
}

// isParameter reports whether header[start:end] is the value of a parameter.
func isParameter(header, key string, start, end int) bool {
	before, startsOne := strings.CutSuffix(header[:start], key)
	startsOne = startsOne && before != "" && strings.ContainsRune("; ", rune(before[len(before)-1]))
	endsOne := end == len(header) || strings.ContainsRune("; ,", rune(header[end]))
	return startsOne && endsOne
}

func hasParameter(header, key, value string) bool {
	for range parameters(header, key, value) {
		return true
	}
	return false
}
