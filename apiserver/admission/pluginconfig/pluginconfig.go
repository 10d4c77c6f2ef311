// Package pluginconfig reads the configuration of admission plugins, which
// --admission-control-config-file names.
package pluginconfig

import (
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Read reads a plugin's configuration into a value. It leaves the value as it is if
// there is no file, and returns an error that names the plugin if a field is unknown
// or has the wrong type.
func Read(plugin string, file io.Reader, into any) error {
	if file == nil {
		return nil
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("configuration of %s: %w", plugin, err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return fmt.Errorf("configuration of %s: %w", plugin, err)
	}
	return nil
}

// ReadKind is Read for a configuration that has a kind: given is the field of the
// value with its type, which must be want.
func ReadKind(plugin string, file io.Reader, into any, given *metav1.TypeMeta, want metav1.TypeMeta) error {
	if file == nil {
		return nil
	}
	if err := Read(plugin, file, into); err != nil {
		return err
	}
	if *given != want {
		return fmt.Errorf("configuration of %s: unsupported kind %s of apiVersion %s: must be %s of %s", plugin, given.Kind, given.APIVersion, want.Kind, want.APIVersion)
	}
	return nil
}
