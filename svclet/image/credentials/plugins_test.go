package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/internal/footprint/leaks"
)

// TestMain runs as the plugin of these tests if the environment has an answer.
func TestMain(m *testing.M) {
	if answer, ok := os.LookupEnv("PLUGIN_ANSWER"); ok {
		os.Exit(answerAsPlugin(answer))
	}
	leaks.Main(m)
}

// answerAsPlugin records the requested image in the file that is its argument, and
// writes the answer, in which IMAGE is replaced by the image.
func answerAsPlugin(answer string) int {
	var request credentialprovider.CredentialProviderRequest
	err := json.NewDecoder(os.Stdin).Decode(&request)
	if err == nil {
		var file *os.File
		if file, err = os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			_, err = fmt.Fprintln(file, request.Kind, request.APIVersion, request.Image)
		}
	}
	if err != nil || strings.HasPrefix(answer, "fail") {
		fmt.Fprintln(os.Stderr, answer, err)
		return 1
	}
	fmt.Print(strings.ReplaceAll(answer, "IMAGE", request.Image))
	return 0
}

// requests returns the number of recorded requests.
func requests(t *testing.T, notes string) int {
	t.Helper()
	data, err := os.ReadFile(notes)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(data), "CredentialProviderRequest credentialprovider.kubelet.k8s.io/v1 reg.io/")
}

// newPlugins configures this test binary as a plugin with that answer.
func newPlugins(t *testing.T, answer string) (plugins *Plugins, clock *clocktesting.FakePassiveClock, notes string) {
	t.Helper()
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "login")); err != nil {
		t.Fatal(err)
	}
	notes = filepath.Join(dir, "notes")
	config, err := json.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
		"providers": []map[string]any{{
			"name": "login", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "matchImages": []string{"reg.io", "*.reg.io"},
			"defaultCacheDuration": "1m", "args": []string{notes}, "env": []map[string]string{{"name": "PLUGIN_ANSWER", "value": answer}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := ReadPluginConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	clock = clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	if plugins, err = NewPlugins(read, dir, clock); err != nil {
		t.Fatal(err)
	}
	return plugins, clock, notes
}

func response(keyType, more string) string {
	return fmt.Sprintf(`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":%q,
		"auth":{"reg.io":{"username":"IMAGE","password":"p"}}%s}`, keyType, more)
}

func TestAPluginsAnswerIsCachedAsItSpecifies(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		requests     string // how often, after each of: reg.io/a, again, reg.io/b, a minute later
	}{
		{"by image", response("Image", ""), "1 1 2 3"},
		{"by registry", response("Registry", ""), "1 1 1 2"},
		{"for all", response("Global", ""), "1 1 1 2"},
		{"for longer", response("Global", `,"cacheDuration":"1h"`), "1 1 1 1"},
		{"not at all", response("Global", `,"cacheDuration":"0s"`), "1 2 3 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plugins, clock, notes := newPlugins(t, c.answer)
			var got []string
			for _, repository := range []string{"reg.io/a", "reg.io/a", "reg.io/b", "reg.io/a"} {
				if len(got) == 3 {
					clock.SetTime(clock.Now().Add(time.Minute))
				}
				if logins := plugins.Lookup(t.Context(), repository); len(logins) != 1 || logins[0].Password != "p" {
					t.Errorf("%s: %q", repository, users(logins))
				}
				got = append(got, fmt.Sprint(requests(t, notes)))
			}
			if strings.Join(got, " ") != c.requests {
				t.Errorf("%s requests, want %s", got, c.requests)
			}
		})
	}
}

func TestAPluginRunsOnlyForMatchingImages(t *testing.T) {
	plugins, _, notes := newPlugins(t, response("Image", ""))
	if logins := plugins.Lookup(t.Context(), "other.io/a"); len(logins) != 0 || requests(t, notes) != 0 {
		t.Errorf("got %q", users(logins))
	}
}

func TestConcurrentLookupsShareAnAnswer(t *testing.T) {
	plugins, _, notes := newPlugins(t, response("Image", ""))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if logins := plugins.Lookup(t.Context(), "reg.io/a"); users(logins) != "reg.io/a" {
				t.Errorf("got %q", users(logins))
			}
		})
	}
	all.Wait()
	if n := requests(t, notes); n < 1 || n > 4 {
		t.Errorf("%d requests", n)
	}
}

func TestAFailedPluginReturnsNoLogins(t *testing.T) {
	for _, c := range []struct{ name, answer, want string }{
		{"exit code", "fail hunter", "error execing credential provider plugin login for image reg.io/a: exit status 1: \"fail hunter <nil>\""},
		{"many lines", "fail\nhunter", `exit status 1: "fail\nhunter <nil>"`},
		{"endless words", "fail" + strings.Repeat("!", 2*maxOutput), `exit status 1: "...` + strings.Repeat("!", maxOutput-len(" <nil>")) + ` <nil>"`},
		{"no answer", "", "want \"credentialprovider.kubelet.k8s.io/v1\""},
		{"no JSON", "hunter2{", "the answer is not a CredentialProviderResponse"},
		{"unknown field", response("Image", `,"hunter2":1`), "the answer is not a CredentialProviderResponse"},
		{"another version", strings.Replace(response("Image", ""), "k8s.io/v1", "k8s.io/v1beta1", 1), `"credentialprovider.kubelet.k8s.io/v1beta1", "CredentialProviderResponse"`},
		{"another kind", strings.Replace(response("Image", ""), "ProviderResponse", "ProviderRequest", 1), "want"},
		{"unknown cache key type", response("Moon", ""), `did not return a valid cacheKeyType: "Moon"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			plugins, _, _ := newPlugins(t, c.answer)
			if logins := plugins.Lookup(t.Context(), "reg.io/a"); len(logins) != 0 {
				t.Errorf("got %q", users(logins))
			}
			_, err := plugins.plugins[0].provide(t.Context(), "reg.io/a")
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v", err)
			}
			failures := 0.0
			if strings.HasPrefix(c.answer, "fail") {
				failures = 2
			}
			if n := testutil.ToFloat64(plugins.metrics.errors.WithLabelValues("login")); n != failures {
				t.Errorf("counted %v errors", n)
			}
		})
	}
}

func TestACancelledLookupDoesNotWaitForThePlugin(t *testing.T) {
	plugins, _, _ := newPlugins(t, response("Image", ""))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := plugins.plugins[0].provide(ctx, "reg.io/a"); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// Wait for the answer, so that the plugin does not outlive the test.
	if logins := plugins.Lookup(t.Context(), "reg.io/a"); users(logins) != "reg.io/a" {
		t.Errorf("got %q", users(logins))
	}
}

func TestAPluginWithoutItsProgramIsAnError(t *testing.T) {
	config := &PluginConfig{}
	providers, err := parsePluginConfig([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	config.Providers = providers
	if _, err := NewPlugins(config, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "credential provider plugin login") {
		t.Errorf("got %v", err)
	}
}

func TestPluginMetricsAreKubelets(t *testing.T) {
	plugins, _, _ := newPlugins(t, response("Image", ""))
	for _, each := range plugins.Metrics() {
		if n := testutil.CollectAndCount(each); n > 1 {
			t.Errorf("%d series", n)
		}
	}
	if got := testutil.CollectAndCount(plugins.metrics.config, "kubelet_credential_provider_config_info"); got != 1 {
		t.Errorf("%d series of the configuration", got)
	}
}

const good = `
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: login
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.reg.io"]
  defaultCacheDuration: 1h
`

func TestPluginConfigurationsAreDecodedStrictly(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"good", "", "", ""},
		{"beta", "config.k8s.io/v1", "config.k8s.io/v1beta1", ""},
		{"no cache", "1h", "0s", ""},
		{"another kind", "CredentialProviderConfig", "SvcletConfiguration", "want CredentialProviderConfig"},
		{"another version", "config.k8s.io/v1", "config.k8s.io/v2", "want CredentialProviderConfig"},
		{"unknown field", "matchImages:", "matchImage:", `unknown field "matchImage"`},
		{"no YAML", "providers:", "providers", "could not find expected ':'"},
		{"no providers", good[strings.Index(good, "providers"):], "providers: []", "at least 1 item in plugins is required"},
		{"path for a name", "name: login", "name: bin/login", "provider name cannot contain '/'"},
		{"space in a name", "name: login", "name: log in", "provider name cannot contain spaces"},
		{"dots for a name", "name: login", "name: ..", "provider name cannot be '..'"},
		{"no name", "name: login", "name: ''", "providers[0].name: Required value"},
		{"no version", "apiVersion: credentialprovider.kubelet.k8s.io/v1", "apiVersion: ''", "providers[0].apiVersion: Required value"},
		{"unknown version", "credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v9", "providers[0].apiVersion: Unsupported value"},
		{"no images", `["*.reg.io"]`, "[]", "at least 1 item in matchImages is required"},
		{"bad image", `*.reg.io`, "%zz", "match image is invalid"},
		{"no duration", "defaultCacheDuration: 1h", "args: []", "providers[0].defaultCacheDuration: Required value"},
		{"negative duration", "1h", "-1h", "must be greater than or equal to 0"},
		{"tokens", "defaultCacheDuration: 1h", "defaultCacheDuration: 1h\n  tokenAttributes: {serviceAccountTokenAudience: a, requireServiceAccount: true}", "tokenAttributes: Forbidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(path, []byte(strings.Replace(good, c.from, c.to, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			config, err := ReadPluginConfig(path)
			if c.want == "" {
				if err != nil || len(config.Providers) != 1 || !strings.HasPrefix(config.Hash, "sha256:") {
					t.Errorf("%+v, %v", config, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestADirectoryOfConfigurationsIsReadInOrder(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadPluginConfig(dir); err == nil || !strings.Contains(err.Error(), "no credential provider configuration in") {
		t.Errorf("got %v", err)
	}
	if _, err := ReadPluginConfig(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
	for name, provider := range map[string]string{"b.yml": "second", "a.yaml": "first", "c.txt": "no", "d.json": "third"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Replace(good, "login", provider, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := ReadPluginConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, each := range config.Providers {
		names = append(names, each.Name)
	}
	if strings.Join(names, " ") != "first second third" {
		t.Errorf("got %q", names)
	}
	if err := os.WriteFile(filepath.Join(dir, "e.json"), []byte(strings.Replace(good, "login", "first", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPluginConfig(dir); err == nil || !strings.Contains(err.Error(), `providers[3].name: Duplicate value: "first"`) {
		t.Errorf("got %v", err)
	}
}
