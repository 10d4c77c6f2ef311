// Package mediatype owns the translation of the media types of requests to the form
// that the libraries accept: one header, in lower case, without ranges of a type
// (application/*) and without types that the client refuses (q=0). Media types are
// not case-sensitive, and a weight of 0 means "not acceptable" (RFC 9110, sections
// 8.3.1 and 12.4.2); the libraries compare bytes and drop neither.
package mediatype

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"svc.dev/svc/apiserver/filters/original"
)

// none is a media type that no handler has. It stands for an Accept header that
// refuses everything: no header would accept everything.
const none = "application/x-none"

// offered are the media types that a range stands for, the preferred one first.
// Endpoints that have other types are asked for them by name or with */*.
var offered = [...]string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain"}

// Filter rewrites the headers Accept and Content-Type before next gets the request.
// A request whose headers need no rewriting costs no allocation.
func Filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		accept, contentType := req.Header["Accept"], req.Header["Content-Type"]
		plain := len(accept) == 0 || len(accept) == 1 && isPlain(accept[0])
		lower := len(contentType) == 0 || !hasUpper(typeOf(contentType[0]))
		if plain && lower {
			next.ServeHTTP(w, req)
			return
		}
		var changes []change
		if !plain {
			changes = append(changes, change{"Accept", accept, []string{rewriteAccept(strings.Join(accept, ","), matches)}})
		}
		if !lower {
			name := typeOf(contentType[0])
			changes = append(changes, change{"Content-Type", contentType, []string{strings.ToLower(name) + contentType[0][len(name):]}})
		}
		rewritten := original.Copy(req, func(sent *http.Request) { undo(changes, sent.Header) })
		for _, c := range changes {
			rewritten.Header[c.header] = c.to
		}
		next.ServeHTTP(w, rewritten)
	})
}

// change is the change of a header by Filter.
type change struct {
	header   string
	from, to []string
}

// undo restores the headers, but those that another filter has translated since.
func undo(changes []change, headers http.Header) {
	for _, c := range changes {
		if slices.Equal(headers[c.header], c.to) {
			headers[c.header] = c.from
		}
	}
}

// typeOf returns a media type without its parameters.
func typeOf(mediaType string) string {
	name, _, _ := strings.Cut(mediaType, ";")
	return name
}

func hasUpper(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return 'A' <= r && r <= 'Z' })
}

// isPlain reports whether an Accept header needs no rewriting: no upper case, no
// weights, and no range but */*.
func isPlain(header string) bool {
	for clause := range strings.SplitSeq(header, ",") {
		name, parameters, _ := strings.Cut(strings.TrimSpace(clause), ";")
		if hasUpper(name) || strings.HasSuffix(strings.TrimSpace(name), "/*") && name != "*/*" {
			return false
		}
		for parameter := range strings.SplitSeq(parameters, ";") {
			key, _, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			if key == "q" || hasUpper(key) {
				return false
			}
		}
	}
	return true
}

// clause is a media range of an Accept header.
type clause struct {
	name       string
	parameters string // as in a header, each with the semicolon before it
	weight     float64
}

// exact is the specificity of a type.
const exact = 2

// specificity is higher for a type than for a range, and for a narrow range than
// for */*.
func (c clause) specificity() int {
	switch {
	case c.name == "*/*":
		return 0
	case strings.HasSuffix(c.name, "/*"):
		return 1
	}
	return exact
}

// rewriteAccept returns an Accept header in the form that the libraries accept. The header
// of a client that is not authenticated may have 1 MiB: contains, which reports whether a
// range contains a media type, is called a fixed number of times for each clause.
func rewriteAccept(header string, contains func(mediaRange, name string) bool) string {
	clauses := parse(header)
	refused := refusedBy(clauses, contains)
	slices.SortStableFunc(clauses, func(a, b clause) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(b.specificity(), a.specificity()))
	})
	var rewritten []string
	for _, c := range clauses {
		if c.weight == 0 {
			continue
		}
		if c.specificity() == exact || c.name == "*/*" && !refused.any {
			rewritten = append(rewritten, c.name+c.parameters)
			continue
		}
		for i, name := range offered {
			if refused.specificity[i] <= c.specificity() && contains(c.name, name) {
				rewritten = append(rewritten, name+c.parameters)
			}
		}
	}
	if len(rewritten) == 0 {
		return none
	}
	return strings.Join(rewritten, ",")
}

// refusals are what the clauses with the weight 0 refuse.
type refusals struct {
	any bool // whether there is such a clause
	// specificity is that of the most specific clause which refuses each type of offered,
	// or -1.
	specificity [len(offered)]int
}

func refusedBy(clauses []clause, contains func(mediaRange, name string) bool) refusals {
	var r refusals
	for i := range r.specificity {
		r.specificity[i] = -1
	}
	for _, c := range clauses {
		if c.weight != 0 {
			continue
		}
		r.any = true
		if c.parameters != "" {
			continue
		}
		for i, name := range offered {
			if contains(c.name, name) {
				r.specificity[i] = max(r.specificity[i], c.specificity())
			}
		}
	}
	return r
}

// parse reads the clauses of an Accept header. It does not hold them against the
// grammar: OpenAPI's media types in protobuf have an @, which is not allowed.
func parse(header string) []clause {
	var clauses []clause
	for text := range strings.SplitSeq(header, ",") {
		name, parameters, _ := strings.Cut(text, ";")
		c := clause{name: strings.ToLower(strings.TrimSpace(name)), weight: 1}
		if c.name == "" {
			continue
		}
		var kept strings.Builder
		for parameter := range strings.SplitSeq(parameters, ";") {
			key, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			switch key = strings.ToLower(key); key {
			case "":
			case "q":
				if weight, err := strconv.ParseFloat(value, 64); err == nil {
					c.weight = weight
				}
			default:
				for _, part := range []string{";", key, "=", value} {
					kept.WriteString(part)
				}
			}
		}
		c.parameters = kept.String()
		clauses = append(clauses, c)
	}
	return clauses
}

// matches reports whether a range contains a media type.
func matches(mediaRange, name string) bool {
	prefix, isRange := strings.CutSuffix(mediaRange, "*")
	if mediaRange == "*/*" {
		return true
	}
	return mediaRange == name || isRange && strings.HasPrefix(name, prefix)
}
