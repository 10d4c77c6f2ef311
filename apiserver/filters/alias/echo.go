package alias

import (
	"net/http"
	"slices"
	"strings"
)

// echo spells extensions in a response as svc does if the request did. Other
// responses have Kubernetes' spelling: a client that knows no other would drop the
// extensions from the object when it writes the object back.
type echo struct {
	names []string
	find  func(body []byte, prefix string) []int
	body  []byte
}

// newEcho returns the translation of a response. The message of an error
// may contain the names of extensions anywhere.
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
