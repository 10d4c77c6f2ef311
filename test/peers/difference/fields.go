package difference

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Fields are the leaves of a document, as text, by their paths. In a path, the
// elements of a list have their own names where they have some, else numbers:
//
//	status.containerStatuses[main].state.waiting.reason
//	status.conditions[Ready].status
//	status.hostIPs[0].ip
//
// The order of the named elements of a list is a leaf, too:
//
//	status.conditions[] = "Initialized Ready"
type Fields map[string]string

// Of returns the fields of what JSON makes of a value, each as the rewriting
// function returns it.
func Of(value any, rewrite func(path, text string) string) (Fields, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(content)))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	all := Fields{}
	all.add("", document, rewrite)
	return all, nil
}

func (f Fields) add(path string, value any, rewrite func(path, text string) string) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			f[path] = "{}"
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			f.add(join(path, key), v[key], rewrite)
		}
	case []any:
		if len(v) == 0 {
			f[path] = "[]"
		}
		names, named := namesOf(v)
		for i, element := range v {
			f.add(path+"["+names[i]+"]", element, rewrite)
		}
		if named {
			f[path+"[]"] = strings.Join(names, " ")
		}
	default:
		f[path] = rewrite(path, fmt.Sprint(v))
	}
}

func join(path, key string) string {
	switch {
	case strings.ContainsAny(key, "./[]"):
		return path + "[" + key + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

// keys are the fields that identify the elements of a list, the first that
// all of them have.
var keys = []string{"mountPath", "type", "name", "containerName"}

// namesOf returns the names of the elements of a list. Those that have the same
// are numbered.
func namesOf(list []any) (names []string, named bool) {
	for _, key := range keys {
		names, counts := make([]string, 0, len(list)), map[string]int{}
		for _, element := range list {
			object, _ := element.(map[string]any)
			name, _ := object[key].(string)
			if name == "" {
				break
			}
			if counts[name]++; counts[name] > 1 {
				name = fmt.Sprintf("%s#%d", name, counts[name])
			}
			names = append(names, name)
		}
		if len(names) == len(list) && len(list) > 0 {
			return names, true
		}
	}
	names = make([]string, len(list))
	for i := range list {
		names[i] = fmt.Sprint(i)
	}
	return names, false
}
