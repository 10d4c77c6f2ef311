package alias

import (
	"net/http"
	"slices"
	"strings"
)

// echo has the extensions that a request wrote in svc's spelling in the same
// spelling in its response. A response to another request has Kubernetes': a client
// that knows no other would drop them from the object, and write it back.
type echo struct {
	names []string
	find  func(body []byte, prefix string) []int
	body  []byte
}

// newEcho returns the translation of a response. The message of an error names
// extensions anywhere in a text.
func newEcho(names []string, status int, contentType string) translation {
	switch {
	case status >= http.StatusBadRequest:
		r := &replacer{}
		for _, name := range names {
			r.texts = append(r.texts, text{kubeExtension + name, svcExtension + name})
		}
		return r
	case strings.HasPrefix(contentType, "application/json"):
		return &echo{names: names, find: inJSON}
	case strings.HasPrefix(contentType, "application/yaml"):
		return &echo{names: names, find: inYAML}
	}
	return nil
}

func (e *echo) next(piece []byte) []byte {
	e.body = append(e.body, piece...)
	return nil
}

func (e *echo) end() []byte {
	places := slices.DeleteFunc(e.find(e.body, kubeExtension), func(at int) bool {
		return !slices.ContainsFunc(e.names, func(name string) bool {
			return hasExtension(e.body, []int{at}, kubeExtension+name)
		})
	})
	return replace(e.body, places, kubeExtension, svcExtension)
}
