// Package pluginconfig reads the configuration of admission plugins, which
// --admission-control-config-file names.
package pluginconfig

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/internal/configlines"
	"svc.dev/svc/internal/suggest"
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

// Check returns an error if an AdmissionConfiguration lists a plugin twice or one that is not among
// plugins, which the library would ignore, or names a file for a
// plugin that it configures itself: the library would ignore one of both. It returns one, too, unless
// the files can be read, and the kubeconfigs that the plugins which are enabled connect by: the library
// would end the process, or not name the field. file is the name of the configuration, to whose directory
// the names of its files are relative.
func Check(file string, content []byte, plugins []string, enabled func(plugin string) bool) error {
	configuration := listed(content)
	first := map[string]int{}
	for i, plugin := range configuration.Plugins {
		if at, twice := first[plugin.Name]; twice {
			return configlines.Explain(content, fmt.Errorf("plugins[%d].name: %s is configured by plugins[%d], too; keep one of them", i, plugin.Name, at))
		}
		first[plugin.Name] = i
		if !slices.Contains(plugins, plugin.Name) {
			return configlines.Explain(content, fmt.Errorf("plugins[%d].name: %w", i, Unknown(plugin.Name, plugins)))
		}
		if plugin.Path != "" && plugin.Configuration != nil {
			return configlines.Explain(content, fmt.Errorf("plugins[%d].path: the configuration of %s is in this file, too; set path or configuration", i, plugin.Name))
		}
		var own []byte
		if plugin.Path != "" {
			var err error
			if own, err = os.ReadFile(located(file, plugin.Path)); err != nil {
				return configlines.Explain(content, fmt.Errorf("plugins[%d].path: %w; name a file that the server can read", i, err))
			}
		}
		if !enabled(plugin.Name) {
			continue
		}
		if plugin.Path != "" {
			if err := checkKubeconfig(plugin.Name, own); err != nil {
				return configlines.Explain(content, fmt.Errorf("plugins[%d].path: %s: %w", i, plugin.Path, configlines.Explain(own, err)))
			}
		} else if plugin.Configuration != nil {
			if err := checkKubeconfig(plugin.Name, plugin.Configuration.Raw); err != nil {
				return configlines.Explain(content, fmt.Errorf("plugins[%d].configuration.%w", i, err))
			}
		}
	}
	return nil
}

// Unknown returns the error about the name of a plugin that is not among plugins.
func Unknown(name string, plugins []string) error {
	if similar := suggest.Closest(name, plugins); similar != "" {
		return fmt.Errorf("there is no admission plugin %q: did you mean %q?", name, similar)
	}
	return fmt.Errorf("there is no admission plugin %q: docs/reference/admission.md lists them", name)
}

// ImagePolicyWebhook is the name of the plugin of package imagepolicy, which imports this one.
const ImagePolicyWebhook = "ImagePolicyWebhook"

// kubeconfigFields are the fields of plugins' configurations that name a kubeconfig.
var kubeconfigFields = map[string][]string{
	mutating.PluginName:   {"kubeConfigFile"},
	validating.PluginName: {"kubeConfigFile"},
	ImagePolicyWebhook:    {"imagePolicy", "kubeConfigFile"},
}

// checkKubeconfig returns an error, which begins with the field, if the configuration of a plugin names
// a kubeconfig that cannot be read. What else is wrong with the configuration, the plugin says.
func checkKubeconfig(plugin string, configuration []byte) error {
	field := kubeconfigFields[plugin]
	if field == nil {
		return nil
	}
	var document map[string]any
	if err := yaml.Unmarshal(configuration, &document); err != nil {
		return nil //nolint:nilerr // the plugin decodes it strictly
	}
	file, _, err := unstructured.NestedString(document, field...)
	if err != nil || !filepath.IsAbs(file) {
		return nil //nolint:nilerr // the plugin says that it is not a string, or must be absolute
	}
	kubeconfig, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%s: %w; name a file that the server can read", strings.Join(field, "."), err)
	}
	if _, err := clientcmd.Load(kubeconfig); err != nil {
		return fmt.Errorf("%s: %s: %w", strings.Join(field, "."), file, err)
	}
	return nil
}

// named is the beginning of the errors of plugins.
var named = regexp.MustCompile(`configuration of (\w+): `)

// Explain returns an error that says what the plugins' error says, and in which line of
// which file. file is the name of the AdmissionConfiguration.
func Explain(file string, err error) error {
	content, unreadable := os.ReadFile(file)
	if unreadable != nil {
		return err
	}
	of := named.FindStringSubmatch(err.Error())
	if of == nil {
		return fmt.Errorf("--admission-control-config-file: %s: %w", file, configlines.Explain(content, err))
	}
	for i, plugin := range listed(content).Plugins {
		if plugin.Name != of[1] {
			continue
		}
		if plugin.Path != "" && plugin.Configuration == nil {
			file = located(file, plugin.Path)
			if content, unreadable = os.ReadFile(file); unreadable == nil {
				err = configlines.Explain(content, err)
			}
		} else if whole, unreadable := configlines.Parse(content); unreadable == nil {
			if part, found := whole.Part(fmt.Sprintf("plugins[%d].configuration", i)); found {
				err = part.Explain(err)
			}
		}
		break
	}
	return fmt.Errorf("--admission-control-config-file: %s: %w", file, err)
}

// listed returns the plugins of a configuration; of one that is invalid, those that it
// could read. The library decodes it strictly.
func listed(content []byte) apiserverv1.AdmissionConfiguration {
	var configuration apiserverv1.AdmissionConfiguration
	_ = yaml.Unmarshal(content, &configuration)
	return configuration
}

// located returns the name of a file that a configuration names.
func located(configuration, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(configuration), name)
}
