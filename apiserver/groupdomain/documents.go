package groupdomain

import (
	"bytes"

	"go.yaml.in/yaml/v3"
)

// value translates a decoded document.
func (n *node) value(value any, kind string) any {
	if n == nil {
		return value
	}
	switch value := value.(type) {
	case string:
		if n.translate != nil {
			return n.translate(value, kind)
		}
	case []any:
		for i := range value {
			value[i] = n.elements.value(value[i], "")
		}
	case map[string]any:
		kind, _ := value["kind"].(string)
		for name, member := range value {
			value[name] = n.members[name].value(member, kind)
		}
	}
	return value
}

// yaml translates a document in YAML. Its order, comments and repeated members stay.
func (n *node) yaml(body []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(body, &document); err != nil {
		return nil, err
	}
	for _, content := range document.Content {
		n.yamlNode(content, "")
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (n *node) yamlNode(value *yaml.Node, kind string) {
	switch {
	case n == nil:
	case value.Kind == yaml.ScalarNode && n.translate != nil:
		value.SetString(n.translate(value.Value, kind))
	case value.Kind == yaml.SequenceNode:
		for _, element := range value.Content {
			n.elements.yamlNode(element, "")
		}
	case value.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(value.Content); i += 2 {
			if value.Content[i].Value == "kind" {
				kind = value.Content[i+1].Value
			}
		}
		for i := 0; i+1 < len(value.Content); i += 2 {
			n.members[value.Content[i].Value].yamlNode(value.Content[i+1], kind)
		}
	}
}
