package fields

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// member returns the field of that name if the node lacks it or something in it.
func (n *Node) member(name string) *member {
	for i := range n.members {
		if n.members[i].name == name {
			return &n.members[i]
		}
	}
	return nil
}

// MayLack reports whether the document, in JSON or YAML, has the name of a field that
// the node lacks. It is much faster than Cut; most documents do not.
func (n *Node) MayLack(document []byte) bool {
	return n != nil && (mayEscape(document) || n.mayLack(document, map[*Node]bool{}))
}

// mayEscape reports whether a letter of the document may be written as an escape of JSON
// or YAML.
func mayEscape(document []byte) bool {
	for _, escape := range []string{`\u`, `\U`, `\x`} {
		if bytes.Contains(document, []byte(escape)) {
			return true
		}
	}
	return false
}

func (n *Node) mayLack(document []byte, seen map[*Node]bool) bool {
	seen[n] = true
	for i := range n.members {
		m := &n.members[i]
		if m.missing && bytes.Contains(document, []byte(m.name)) ||
			m.inner != nil && !seen[m.inner] && bytes.Contains(document, []byte(m.name)) && m.inner.mayLack(document, seen) {
			return true
		}
	}
	return false
}

// Drop removes the fields that the node lacks from a decoded document, and returns a
// text for each, in no order.
func (n *Node) Drop(document map[string]any) []string { return n.drop(document, false, nil) }

func (n *Node) drop(value any, keyed bool, at *path) []string {
	if n == nil {
		return nil
	}
	var found []string
	switch value := value.(type) {
	case []any:
		for i := range value {
			found = append(found, n.drop(value[i], keyed, &path{parent: at, index: i})...)
		}
	case map[string]any:
		for key := range value {
			to := &path{parent: at, name: key}
			if keyed {
				found = append(found, n.drop(value[key], false, to)...)
				continue
			}
			switch m := n.member(key); {
			case m == nil:
			case m.missing:
				delete(value, key)
				found = append(found, unknown(to))
			default:
				found = append(found, m.inner.drop(value[key], m.keyed, to)...)
			}
		}
	}
	return found
}

// Cut returns a JSON document without the fields that the node lacks, and a text for
// each of them. What it does not cut, duplicate members among it, stays as it is but for
// white space. It returns an error for a document that is invalid.
func (n *Node) Cut(document []byte) (rest []byte, found []string, err error) {
	return n.cut(document, false, nil)
}

func (n *Node) cut(raw []byte, keyed bool, at *path) (rest []byte, found []string, err error) {
	raw = bytes.TrimSpace(raw)
	if n == nil || len(raw) == 0 || raw[0] != '{' && raw[0] != '[' {
		return raw, nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if _, err := decoder.Token(); err != nil {
		return nil, nil, err
	}
	out := bytes.NewBuffer(raw[:1:1])
	for i := 0; decoder.More(); i++ {
		to, inner, innerKeyed := &path{parent: at, index: i}, n, keyed
		var name string
		if raw[0] == '{' {
			token, err := decoder.Token()
			if err != nil {
				return nil, nil, err
			}
			name = token.(string) // the decoder accepts no other key
			to, inner, innerKeyed = &path{parent: at, name: name}, n, false
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, nil, err
		}
		if raw[0] == '{' && !keyed {
			m := n.member(name)
			if m != nil && m.missing {
				found = append(found, unknown(to))
				continue
			}
			if inner = nil; m != nil {
				inner, innerKeyed = m.inner, m.keyed
			}
		}
		kept, cut, err := inner.cut(value, innerKeyed, to)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, cut...)
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		if raw[0] == '{' {
			key, err := json.Marshal(name)
			if err != nil {
				return nil, nil, err
			}
			out.Write(append(key, ':'))
		}
		out.Write(kept)
	}
	if _, err := decoder.Token(); err != nil {
		return nil, nil, err
	}
	out.WriteByte(raw[0] + 2) // } follows { by two, and ] follows [
	return out.Bytes(), found, nil
}

// CutOperations returns a JSON patch without the operations that add or replace a field
// that the node lacks, and without such fields in the values of others.
func (n *Node) CutOperations(patch []byte) (rest []byte, found []string, err error) {
	var operations, kept []map[string]json.RawMessage
	if err := json.Unmarshal(patch, &operations); err != nil {
		return nil, nil, err
	}
	for _, operation := range operations {
		cut, missing, err := n.cutOperation(operation)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, missing...)
		if !cut {
			kept = append(kept, operation)
		}
	}
	if len(found) == 0 {
		return patch, nil, nil
	}
	if kept == nil {
		return []byte("[]"), found, nil
	}
	rest, err = json.Marshal(kept)
	return rest, found, err
}

// cutOperation changes the value of an operation, or reports that all of it is cut.
func (n *Node) cutOperation(operation map[string]json.RawMessage) (cut bool, found []string, err error) {
	var op, pointer string
	if json.Unmarshal(operation["op"], &op) != nil || json.Unmarshal(operation["path"], &pointer) != nil {
		return false, nil, nil // the handler says what is wrong
	}
	if op != "add" && op != "replace" && op != "copy" && op != "move" {
		return false, nil, nil
	}
	inner, keyed, at, missing := n.at(pointer)
	if missing != nil {
		return true, []string{unknown(missing)}, nil
	}
	if value, ok := operation["value"]; ok {
		operation["value"], found, err = inner.cut(value, keyed, at)
	}
	return false, found, err
}

// at returns what the value at a JSON pointer lacks, and its path; or, if the pointer is
// into a field that the node lacks, the path of that.
func (n *Node) at(pointer string) (inner *Node, keyed bool, at, missing *path) {
	inner = n
	for _, token := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if inner == nil || pointer == "" {
			return inner, keyed, at, nil
		}
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		if index, err := strconv.Atoi(token); err == nil && !keyed {
			at = &path{parent: at, index: index}
			continue
		}
		if token == "-" && !keyed {
			at = &path{parent: at}
			continue
		}
		at = &path{parent: at, name: token}
		if keyed {
			keyed = false
			continue
		}
		m := inner.member(token)
		if m == nil {
			return nil, false, at, nil
		}
		if m.missing {
			return nil, false, nil, at
		}
		inner, keyed = m.inner, m.keyed
	}
	return inner, keyed, at, nil
}
