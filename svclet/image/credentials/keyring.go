package credentials

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Login is what a registry is shown. It never prints itself.
type Login struct {
	Username, Password string
}

// String hides what a login is made of from logs and errors.
func (Login) String() string { return "(hidden)" }

// GoString hides what a login is made of from logs and errors.
func (Login) GoString() string { return "(hidden)" }

// Keyring holds logins by the registry, or the part of one, that they are for.
// Its zero value is empty.
type Keyring struct {
	logins map[string][]Login
	// order has the keys of logins, those that say more before those that say
	// less: "quay.io/coreos" before "quay.io".
	order []string
}

// FromSecrets is a keyring of the pull secrets among these. Secrets of other
// types count for nothing; a pull secret that cannot be read is an error, which
// does not tell what is in it.
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
		keyring.Add(config)
	}
	return keyring, nil
}

// Add adds the logins of a configuration. Entries whose registry is no URL are
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

// keyOf is the key of a registry in a keyring: its host, and its path unless
// that only says which version of the registry's API is meant.
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

// dockerHub is under which docker keeps the login of its registry.
const dockerHub = "index.docker.io"

// Lookup gives the logins that may be tried for a repository, the most specific
// ones first. A repository is an image's name without tag and digest.
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

// onDockerHub says whether an image is docker's registry's: the first part of
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

// Matches says whether a pattern matches an image: the ports are the same, each
// part of the host matches, with globs, and the pattern's path begins the
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
