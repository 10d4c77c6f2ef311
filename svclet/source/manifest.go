package source

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// maxManifest bounds a manifest and the answer of the URL, in bytes.
const maxManifest = 10 << 20

// manifest is the content of a file or of the URL.
type manifest struct {
	// pods are as written, without defaults.
	pods []*corev1.Pod
	// list reports that they were written as a list.
	list bool
	// warnings are about fields that are ignored.
	warnings []string
}

// parse decodes a Pod, or a PodList, in YAML or JSON. It neither sets defaults nor
// validates.
func parse(data []byte) (manifest, error) {
	var m manifest
	if len(bytes.TrimSpace(data)) == 0 {
		return m, errors.New("it is empty: want a Pod")
	}
	first, more := documents(data)
	raw, err := sigsyaml.YAMLToJSONStrict(first)
	if err != nil {
		lenient, lenientErr := yaml.ToJSON(first)
		if lenientErr != nil {
			return m, fmt.Errorf("it is neither YAML nor JSON: %w", lenientErr)
		}
		if raw = lenient; !json.Valid(raw) {
			return m, fmt.Errorf("it is neither YAML nor JSON: %w", err)
		}
		m.warnings = append(m.warnings, err.Error())
	}
	if more {
		m.warnings = append(m.warnings, "only the first of its documents is read: write each pod into a file of its own")
	}
	kind := struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}{}
	if json.Unmarshal(raw, &kind) != nil { // its error would be about Go types
		return m, errors.New("invalid object: want apiVersion: v1, kind: Pod")
	}
	switch {
	case kind.Kind == "" || kind.APIVersion == "":
		return m, errors.New("it has no apiVersion and kind: want apiVersion: v1, kind: Pod")
	case kind.APIVersion != "v1" || kind.Kind != "Pod" && kind.Kind != "PodList":
		return m, fmt.Errorf("it is of apiVersion %q, kind %q: want apiVersion v1, kind Pod", kind.APIVersion, kind.Kind)
	case kind.Kind == "Pod":
		pod := &corev1.Pod{}
		m.pods = []*corev1.Pod{pod}
		err = m.decode(raw, pod)
	default:
		list := &corev1.PodList{}
		m.list = true
		err = m.decode(raw, list)
		for i := range list.Items {
			m.pods = append(m.pods, &list.Items[i])
		}
	}
	return m, err
}

// decode adds a warning for unknown fields.
func (m *manifest) decode(raw []byte, into any) error {
	unknown, err := kjson.UnmarshalStrict(raw, into)
	for _, e := range unknown {
		m.warnings = append(m.warnings, e.Error())
	}
	return err
}

// documents returns the first document that is not empty, and whether there are
// more.
func documents(data []byte) (first []byte, more bool) {
	if !bytes.Contains(data, []byte("\n---")) {
		return data, false
	}
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := reader.Read()
		if err != nil {
			if first == nil {
				return data, false
			}
			return first, false
		}
		if len(strings.TrimSpace(withoutComments(doc))) == 0 {
			continue
		}
		if first != nil {
			return first, true
		}
		first = slices.Clone(doc)
	}
}

// withoutComments returns the document without comments and separators.
func withoutComments(doc []byte) string {
	lines := strings.Split(string(doc), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool {
		return strings.HasPrefix(strings.TrimSpace(l), "#") || strings.HasPrefix(l, "---") && strings.Trim(l, "- \r") == ""
	}), "\n")
}

// readAll reads at most maxManifest bytes.
func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxManifest {
		return nil, fmt.Errorf("it is longer than %d MiB, which no pods are: want apiVersion v1, kind Pod", maxManifest>>20)
	}
	return data, nil
}
