package credentials

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Login is a registry login. It is never printed.
type Login struct {
	Username, Password string
	// Secret is the pull secret that the login is of; empty for one of the node.
	Secret Secret `json:"-"`
}

// Secret identifies a pull secret.
type Secret struct {
	Namespace, Name string
	UID             types.UID
}

// String hides the login in logs and errors.
func (Login) String() string { return "(hidden)" }

// GoString hides the login in logs and errors.
func (Login) GoString() string { return "(hidden)" }

// Keyring has logins by registry, or part of one. Its zero value is empty.
type Keyring struct {
	logins map[string][]Login
	// order has the keys of logins, more specific ones first: "quay.io/coreos" before
	// "quay.io".
	order []string
}

// FromSecrets returns a keyring of the pull secrets. Secrets of other types are
// ignored; an invalid pull secret is an error, which does not quote it.
func FromSecrets(secrets []corev1.Secret) (*Keyring, error) {
	keyring := new(Keyring)
	for i := range secrets {
		s := &secrets[i]
		var config Config
		var err error
		switch {
		case s.Type == corev1.SecretTypeDockerConfigJson && len(s.Data[corev1.DockerConfigJsonKey]) > 0:
			config, err = ParseConfigJSON(s.Data[corev1.DockerConfigJsonKey])
		case s.Type == corev1.SecretTypeDockercfg && len(s.Data[corev1.DockerConfigKey]) > 0:
			config, err = ParseConfig(s.Data[corev1.DockerConfigKey])
		}
		if err != nil {
			return nil, fmt.Errorf("pull secret %s/%s: %w", s.Namespace, s.Name, err)
		}
		for registry, login := range config {
			login.Secret = Secret{Namespace: s.Namespace, Name: s.Name, UID: s.UID}
			config[registry] = login
		}
		keyring.Add(config)
	}
	return keyring, nil
}

// Add adds the logins of a configuration. Entries with an invalid registry URL are
// left out.
func (k *Keyring) Add(config Config) {
	if len(config) == 0 {
		return
	}
	if k.logins == nil {
		k.logins = make(map[string][]Login, len(config))
	}
	for _, registry := range config.registries() {
		key, ok := keyOf(registry)
		if !ok {
			continue
		}
		if len(k.logins[key]) == 0 {
			k.order = append(k.order, key)
		}
		k.logins[key] = append(k.logins[key], config[registry])
	}
	slices.Sort(k.order)
	slices.Reverse(k.order)
}

// keyOf returns the key of a registry in a keyring: its host, and its path unless
// that is only the version of the registry's API.
func keyOf(registry string) (string, bool) {
	if !strings.HasPrefix(registry, "https://") && !strings.HasPrefix(registry, "http://") {
		registry = "https://" + registry
	}
	parsed, err := url.Parse(registry)
	if err != nil {
		return "", false
	}
	under := parsed.Path
	if strings.HasPrefix(under, "/v1/") || strings.HasPrefix(under, "/v2/") {
		under = under[len("/v1"):]
	}
	if under == "/" {
		under = ""
	}
	return parsed.Host + under, true
}

// dockerHub is the key of docker's own registry.
const dockerHub = "index.docker.io"

// Lookup returns the logins for a repository, the most specific ones first. A
// repository is an image name without tag and digest.
func (k *Keyring) Lookup(repository string) []Login {
	var found []Login
	for _, key := range k.order {
		if Matches(key, repository) {
			found = append(found, k.logins[key]...)
		}
	}
	if len(found) == 0 && onDockerHub(repository) {
		return slices.Clone(k.logins[dockerHub])
	}
	return found
}

// onDockerHub reports whether an image is in docker's registry: the first part of
// its name is no registry, or is docker's.
func onDockerHub(repository string) bool {
	first, _, more := strings.Cut(repository, "/")
	switch {
	case first == "":
		return false
	case !more, first == "docker.io", first == dockerHub:
		return true
	}
	return !strings.ContainsAny(first, ".:")
}

// Matches reports whether a pattern matches an image: the ports are equal, each
// part of the host matches, with globs, and the pattern's path is a prefix of the
// image's.
func Matches(pattern, image string) bool {
	of, err := parseSchemeless(pattern)
	if err != nil {
		return false
	}
	to, err := parseSchemeless(image)
	if err != nil {
		return false
	}
	ofParts, ofPort := splitHost(of.Host)
	toParts, toPort := splitHost(to.Host)
	if ofPort != toPort || len(ofParts) != len(toParts) || !strings.HasPrefix(to.Path, of.Path) {
		return false
	}
	for i := range ofParts {
		if ok, err := path.Match(ofParts[i], toParts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func parseSchemeless(s string) (*url.URL, error) { return url.Parse("https://" + s) }

func splitHost(host string) (parts []string, port string) {
	if name, number, err := net.SplitHostPort(host); err == nil {
		host, port = name, number
	}
	return strings.Split(host, "."), port
}
