package credentials

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletconfig "k8s.io/kubelet/config/v1"
	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"sigs.k8s.io/yaml"
)

// PluginConfig is the configuration of credential provider plugins.
type PluginConfig struct {
	Providers []kubeletconfig.CredentialProvider
	// Hash is the hash of all its files, for the metric that identifies an agent's
	// configuration.
	Hash string
}

// The API group and versions of the configuration and of the plugins' protocol.
// Later versions have only added fields.
const configGroup = "kubelet.config.k8s.io"

var (
	configVersions = []string{configGroup + "/v1", configGroup + "/v1alpha1", configGroup + "/v1beta1"}
	pluginVersions = []string{
		credentialprovider.SchemeGroupVersion.Group + "/v1",
		credentialprovider.SchemeGroupVersion.Group + "/v1alpha1",
		credentialprovider.SchemeGroupVersion.Group + "/v1beta1",
	}
)

// ReadPluginConfig reads the configuration of plugins, in YAML or JSON, from a
// file, or from all files *.json, *.yaml and *.yml in a directory, in order.
func ReadPluginConfig(path string) (*PluginConfig, error) {
	files, err := configFiles(path)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	config := new(PluginConfig)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		// The lengths distinguish files that are split differently.
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(data))))
		hash.Write(data)
		providers, err := parsePluginConfig(data)
		if err != nil {
			return nil, fmt.Errorf("credential provider configuration %s: %w", file, err)
		}
		config.Providers = append(config.Providers, providers...)
	}
	config.Hash = fmt.Sprintf("sha256:%x", hash.Sum(nil))
	if errs := validatePlugins(config.Providers); len(errs) > 0 {
		return nil, fmt.Errorf("credential provider configuration %s: %w", path, errs.ToAggregate())
	}
	return config, nil
}

func configFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		if extension := filepath.Ext(entry.Name()); !entry.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, extension) {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no credential provider configuration in %s: its files end in .json, .yaml or .yml", path)
	}
	return files, nil
}

func parsePluginConfig(data []byte) ([]kubeletconfig.CredentialProvider, error) {
	var config kubeletconfig.CredentialProviderConfig
	if err := yaml.UnmarshalStrict(data, &config); err != nil {
		return nil, err
	}
	if config.Kind != "CredentialProviderConfig" || !slices.Contains(configVersions, config.APIVersion) {
		return nil, fmt.Errorf("apiVersion %q, kind %q: want CredentialProviderConfig of one of %s", config.APIVersion, config.Kind, strings.Join(configVersions, ", "))
	}
	return config.Providers, nil
}

func validatePlugins(providers []kubeletconfig.CredentialProvider) field.ErrorList {
	path := field.NewPath("providers")
	if len(providers) == 0 {
		return field.ErrorList{field.Required(path, "at least 1 item in plugins is required")}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range providers {
		p, path := &providers[i], path.Index(i)
		if names[p.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
		}
		names[p.Name] = true
		errs = append(errs, validatePlugin(p, path)...)
	}
	return errs
}

func validatePlugin(p *kubeletconfig.CredentialProvider, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch name := path.Child("name"); {
	case p.Name == "":
		errs = append(errs, field.Required(name, ""))
	case strings.Contains(p.Name, "/"):
		errs = append(errs, field.Invalid(name, p.Name, "provider name cannot contain '/'"))
	case strings.Contains(p.Name, " "):
		errs = append(errs, field.Invalid(name, p.Name, "provider name cannot contain spaces"))
	case p.Name == "." || p.Name == "..":
		errs = append(errs, field.Invalid(name, p.Name, fmt.Sprintf("provider name cannot be '%s'", p.Name)))
	}
	if p.APIVersion == "" {
		errs = append(errs, field.Required(path.Child("apiVersion"), ""))
	} else if !slices.Contains(pluginVersions, p.APIVersion) {
		errs = append(errs, field.NotSupported(path.Child("apiVersion"), p.APIVersion, pluginVersions))
	}
	if len(p.MatchImages) == 0 {
		errs = append(errs, field.Required(path.Child("matchImages"), "at least 1 item in matchImages is required"))
	}
	for i, pattern := range p.MatchImages {
		if _, err := parseSchemeless(pattern); err != nil {
			errs = append(errs, field.Invalid(path.Child("matchImages").Index(i), pattern, fmt.Sprintf("match image is invalid: %s", err)))
		}
	}
	if duration := path.Child("defaultCacheDuration"); p.DefaultCacheDuration == nil {
		errs = append(errs, field.Required(duration, ""))
	} else if p.DefaultCacheDuration.Duration < 0 {
		errs = append(errs, field.Invalid(duration, p.DefaultCacheDuration.Duration.String(), "must be greater than or equal to 0"))
	}
	if p.TokenAttributes != nil {
		errs = append(errs, field.Forbidden(path.Child("tokenAttributes"), "service account tokens for credential providers are not supported"))
	}
	return errs
}

// decodeResponse decodes the answer of a plugin. Its errors do not quote the
// answer.
func decodeResponse(data []byte, apiVersion string) (*credentialprovider.CredentialProviderResponse, error) {
	var response credentialprovider.CredentialProviderResponse
	if err := yaml.UnmarshalStrict(data, &response); err != nil {
		return nil, errors.New("the answer is not a CredentialProviderResponse")
	}
	if response.Kind != "CredentialProviderResponse" || response.APIVersion != apiVersion {
		return nil, fmt.Errorf("the answer's apiVersion and kind are %q, %q: want %q, CredentialProviderResponse", response.APIVersion, response.Kind, apiVersion)
	}
	switch response.CacheKeyType {
	case credentialprovider.ImagePluginCacheKeyType, credentialprovider.RegistryPluginCacheKeyType, credentialprovider.GlobalPluginCacheKeyType:
		return &response, nil
	default:
		return nil, fmt.Errorf("credential provider plugin did not return a valid cacheKeyType: %q", response.CacheKeyType)
	}
}
