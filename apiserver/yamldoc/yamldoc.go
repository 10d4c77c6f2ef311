// Package yamldoc owns the check that a configuration file is a YAML or JSON document:
// the decoders of Kubernetes' configurations do not say in which line it is not.
package yamldoc

import (
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// Check returns an error, in one line, unless content is a document.
func Check(content []byte) error {
	if strings.TrimSpace(string(content)) == "" {
		return errors.New("the file is empty; write a YAML document")
	}
	if _, err := yaml.YAMLToJSON(content); err != nil {
		reason := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
		return fmt.Errorf("%s; write a YAML or JSON document", strings.Join(strings.Fields(reason), " "))
	}
	return nil
}
