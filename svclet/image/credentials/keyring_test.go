package credentials

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

func users(logins []Login) string {
	var names []string
	for _, login := range logins {
		names = append(names, login.Username)
	}
	return strings.Join(names, " ")
}

func TestLoginsMatchRegistryPortGlobAndPath(t *testing.T) {
	for _, c := range []struct {
		name       string
		registries string // each is also the user
		repository string
		want       string
	}{
		{"host", "reg.io", "reg.io/a/b", "reg.io"},
		{"another host", "reg.io", "other.io/a", ""},
		{"scheme and version of the API say nothing", "https://reg.io/v1/ http://reg.io/v2/ reg.io/", "reg.io/a", "http://reg.io/v2/ https://reg.io/v1/ reg.io/"},
		{"port", "reg.io:5000", "reg.io:5000/a", "reg.io:5000"},
		{"port is missing", "reg.io", "reg.io:5000/a", ""},
		{"port too many", "reg.io:5000", "reg.io/a", ""},
		{"path", "reg.io/team", "reg.io/team/a", "reg.io/team"},
		{"another path", "reg.io/team", "reg.io/other/a", ""},
		{"a path is a prefix", "reg.io/te", "reg.io/team/a", "reg.io/te"},
		{"path after the version", "https://reg.io/v2/team", "reg.io/team/a", "https://reg.io/v2/team"},
		{"the most specific first", "reg.io reg.io/team reg.io/team/a", "reg.io/team/a", "reg.io/team/a reg.io/team reg.io"},
		{"glob", "*.reg.io", "eu.reg.io/a", "*.reg.io"},
		{"a glob is for one part", "*.reg.io", "a.eu.reg.io/a", ""},
		{"glob within a part", "eu*.reg.*", "eu-1.reg.dev/a", "eu*.reg.*"},
		{"globs and what they match", "*.io reg.io", "reg.io/a", "reg.io *.io"},
		{"no glob in ports", "reg.io:*", "reg.io:5000/a", ""},
		{"docker hub, as docker has it", "https://index.docker.io/v1/", "docker.io/library/app", "https://index.docker.io/v1/"},
		{"docker hub by its image name", "docker.io", "docker.io/me/app", "docker.io"},
		{"docker hub is for no other", "https://index.docker.io/v1/", "reg.io/app", ""},
		{"docker hub for names without registry", "index.docker.io", "me/app", "index.docker.io"},
		{"no URL", "reg.io:port%zz reg.io", "reg.io/a", "reg.io"},
		{"bad glob", "[reg.io", "reg.io/a", ""},
		{"nothing", "", "reg.io/a", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Config{}
			for _, registry := range strings.Fields(c.registries) {
				config[registry] = Login{Username: registry}
			}
			keyring := new(Keyring)
			keyring.Add(config)
			if got := users(keyring.Lookup(c.repository)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestDockerConfigurationsAreParsed(t *testing.T) {
	auth := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, c := range []struct {
		name, entry string
		want        Login
		fails       bool
	}{
		{"user and password", `{"username":"u","password":"p","email":"e"}`, Login{Username: "u", Password: "p"}, false},
		{"auth", `{"auth":"` + auth("u:p") + `"}`, Login{Username: "u", Password: "p"}, false},
		{"auth comes first", `{"username":"x","password":"y","auth":"` + auth("u:p") + `"}`, Login{Username: "u", Password: "p"}, false},
		{"auth without padding", `{"auth":"` + base64.RawStdEncoding.EncodeToString([]byte("us:p")) + `"}`, Login{Username: "us", Password: "p"}, false},
		{"colon in the password", `{"auth":"` + auth("u:p:q") + `"}`, Login{Username: "u", Password: "p:q"}, false},
		{"empty password", `{"auth":"` + auth("u:") + `"}`, Login{Username: "u"}, false},
		{"what others add", `{"username":"u","identitytoken":"t"}`, Login{Username: "u"}, false},
		{"nothing", `{}`, Login{}, false},
		{"no base64", `{"auth":"%%%"}`, Login{}, true},
		{"no colon", `{"auth":"` + auth("hunter2") + `"}`, Login{}, true},
		{"no object", `"hunter2"`, Login{}, true},
		{"no JSON", `{"username":hunter2}`, Login{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			file, err := ParseConfigJSON([]byte(`{"auths":{"reg.io":` + c.entry + `},"credsStore":"x"}`))
			old, oldErr := ParseConfig([]byte(`{"reg.io":` + c.entry + `}`))
			if (err != nil) != c.fails || (oldErr != nil) != c.fails {
				t.Fatalf("errors %v, %v", err, oldErr)
			}
			if c.fails {
				if strings.Contains(err.Error()+oldErr.Error(), "hunter2") {
					t.Errorf("the error contains a secret: %v, %v", err, oldErr)
				}
				return
			}
			if file["reg.io"] != c.want || old["reg.io"] != c.want {
				t.Errorf("got %q, %q", file["reg.io"].Password, old["reg.io"].Password)
			}
		})
	}
}

func TestALoginIsNeverPrinted(t *testing.T) {
	login := Login{Username: "u", Password: "hunter2"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, value := range []any{login, &login, []Login{login}, Config{"reg.io": login}} {
			if got := fmt.Sprintf(format, value); strings.Contains(got, "hunter2") {
				t.Errorf("%s prints %s", format, got)
			}
		}
	}
}

func TestPullSecretsFormOneKeyring(t *testing.T) {
	secret := func(kind corev1.SecretType, key, data string) corev1.Secret {
		s := corev1.Secret{Type: kind, Data: map[string][]byte{key: []byte(data)}}
		s.Name, s.Namespace = "s", "ns"
		return s
	}
	json := secret(corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"auths":{"reg.io":{"username":"a"}}}`)
	old := secret(corev1.SecretTypeDockercfg, corev1.DockerConfigKey, `{"reg.io":{"username":"b"}}`)
	for _, c := range []struct {
		name    string
		secrets []corev1.Secret
		want    string
		fails   bool
	}{
		{"none", nil, "", false},
		{"both kinds, in their order", []corev1.Secret{old, json}, "b a", false},
		{"other types", []corev1.Secret{secret(corev1.SecretTypeOpaque, corev1.DockerConfigJsonKey, `{"auths":{"reg.io":{"username":"x"}}}`)}, "", false},
		{"nothing in it", []corev1.Secret{secret(corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, ""), json}, "a", false},
		{"one that is broken", []corev1.Secret{json, secret(corev1.SecretTypeDockercfg, corev1.DockerConfigKey, "{")}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			keyring, err := FromSecrets(c.secrets)
			if (err != nil) != c.fails {
				t.Fatal(err)
			}
			if err == nil && users(keyring.Lookup("reg.io/a")) != c.want {
				t.Errorf("got %q", users(keyring.Lookup("reg.io/a")))
			}
		})
	}
}

func TestTheFirstReadableDockerConfigurationIsUsed(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "none", "config.json"), filepath.Join(dir, "config.json"), filepath.Join(dir, ".dockercfg")}
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	files := NewFiles(paths, clock)
	expect := func(want string) {
		t.Helper()
		if got := users(files.Lookup(t.Context(), "reg.io/a")); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	expect("")
	write(paths[2], `{"reg.io":{"username":"old"}}`)
	expect("")
	clock.SetTime(clock.Now().Add(5 * time.Minute))
	expect("old")
	write(paths[1], `{"auths":{"reg.io":{"username":"new"}}}`)
	clock.SetTime(clock.Now().Add(5 * time.Minute))
	expect("new")
	write(paths[1], `half writ`)
	clock.SetTime(clock.Now().Add(5 * time.Minute))
	expect("old")
}

func TestDefaultPathsAreKubelets(t *testing.T) {
	want := []string{
		"/var/lib/svclet/config.json", "config.json", "/root/.docker/config.json", "/.docker/config.json",
		"/var/lib/svclet/.dockercfg", ".dockercfg", "/root/.dockercfg", "/.dockercfg",
	}
	if got := DefaultPaths("/var/lib/svclet", "/root"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
	if got := DefaultPaths("", ""); !reflect.DeepEqual(got, []string{"config.json", "/.docker/config.json", ".dockercfg", "/.dockercfg"}) {
		t.Errorf("got %q", got)
	}
}

func FuzzDockerConfigurations(f *testing.F) {
	for _, seed := range []string{
		`{"auths":{"reg.io":{"auth":"dTpw"}}}`, `{"reg.io":{"username":"u"}}`, `{"auths":null}`, `{"auths":{"*.io/x":{}}}`, `[]`, `{"http://[::1]:80/v1/":{}}`,
	} {
		f.Add([]byte(seed), "reg.io/a")
	}
	f.Fuzz(func(t *testing.T, data []byte, repository string) {
		keyring := new(Keyring)
		for _, parse := range []func([]byte) (Config, error){ParseConfigJSON, ParseConfig} {
			config, err := parse(data)
			if err != nil && !reflect.DeepEqual(err, errUnreadable) {
				t.Errorf("the error may contain a secret: %v", err)
			}
			keyring.Add(config)
		}
		keyring.Lookup(repository)
	})
}

func FuzzLoginsRoundTrip(f *testing.F) {
	f.Add("user", "p:w")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, username, password string) {
		if strings.Contains(username, ":") {
			return
		}
		data, err := json.Marshal(map[string]map[string]string{"reg.io": {"auth": base64.StdEncoding.EncodeToString([]byte(username + ":" + password))}})
		if err != nil {
			t.Fatal(err)
		}
		config, err := ParseConfig(data)
		if err != nil || config["reg.io"] != (Login{Username: username, Password: password}) {
			t.Errorf("%q, %q: %v", username, password, err)
		}
	})
}
