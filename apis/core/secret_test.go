package core

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestSecretRules(t *testing.T) {
	const immutable = "field is immutable when `immutable` is set"
	resourcetest.Rules(t, secrets, `metadata: {name: a, namespace: default}`, []resourcetest.Rule{
		{Name: "an empty secret"},
		{Name: "a type of one's own", Change: `type: example.com/mine`},
		{Name: "keys are file names", Change: `stringData: {a/b: c}`, Want: []string{
			`data[a/b]: Invalid value: "a/b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`}},
		{Name: "a service account's token names the account", Change: `type: kubernetes.io/service-account-token`,
			Want: []string{"metadata.annotations[kubernetes.io/service-account.name]: Required value"}},
		{Name: "and is complete with it", Change: `{type: kubernetes.io/service-account-token, metadata: {annotations: {kubernetes.io/service-account.name: b}}}`},
		{Name: "dockercfg has its file", Change: `type: kubernetes.io/dockercfg`, Want: []string{"data[.dockercfg]: Required value"}},
		{Name: "dockerconfigjson has its file", Change: `type: kubernetes.io/dockerconfigjson`, Want: []string{"data[.dockerconfigjson]: Required value"}},
		{Name: "which is JSON, and not shown", Change: `{type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: secret}}`,
			Want: []string{`data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character 's' looking for beginning of value`}},
		{Name: "dockerconfigjson", Change: `{type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: "{}"}}`},
		{Name: "basic auth has a user or a password", Change: `type: kubernetes.io/basic-auth`,
			Want: []string{"data[username]: Required value", "data[password]: Required value"}},
		{Name: "a user alone is enough", Change: `{type: kubernetes.io/basic-auth, stringData: {username: ""}}`},
		{Name: "ssh auth has a key", Change: `{type: kubernetes.io/ssh-auth, stringData: {ssh-privatekey: ""}}`, Want: []string{"data[ssh-privatekey]: Required value"}},
		{Name: "tls has certificate and key", Change: `type: kubernetes.io/tls`, Want: []string{"data[tls.crt]: Required value", "data[tls.key]: Required value"}},
		{Name: "the type stays", Update: true, Change: `type: example.com/b`, Was: `type: example.com/a`,
			Want: []string{`type: Invalid value: "example.com/b": field is immutable`}},
		{Name: "an immutable secret stays", Update: true, Change: `{immutable: false, stringData: {a: c}}`, Was: `{immutable: true, stringData: {a: b}}`,
			Want: []string{"immutable: Forbidden: " + immutable, "data: Forbidden: " + immutable}},
		{Name: "its metadata may change", Update: true, Change: `{immutable: true, metadata: {labels: {a: b}}}`, Was: `immutable: true`},
	})
}

func TestSecretIsAtMostAMebibyte(t *testing.T) {
	s := &corev1.Secret{Data: map[string][]byte{"a": make([]byte, corev1.MaxSecretSize)}}
	if errs := validateSecret(s); len(errs) > 0 {
		t.Error(errs)
	}
	s.Data["b"] = []byte{0}
	if errs := validateSecret(s); len(errs) != 1 || !strings.Contains(errs[0].Error(), "data: Too long: may not be more than 1048576 bytes") {
		t.Error(errs)
	}
}

func TestSecretWarnsOfAKeyWithoutItsCertificate(t *testing.T) {
	tls := resourcetest.Object(t, secrets.Kind(), `{type: kubernetes.io/tls, stringData: {tls.crt: a, tls.key: b}}`).(*corev1.Secret)
	if got := warnSecret(tls, nil); len(got) != 1 || !strings.Contains(got[0], "tls: failed to find any PEM data") {
		t.Errorf("warnings of a certificate that is none: %q", got)
	}
}

func TestServiceAccountKeepsTheNamesOfSecrets(t *testing.T) {
	k := serviceAccounts.Kind()
	sa := resourcetest.Object(t, k, `secrets: [{name: a, namespace: b, kind: c}]`).(*corev1.ServiceAccount)
	if k.PrepareCreate(t.Context(), nil, sa); sa.Secrets[0] != (corev1.ObjectReference{Name: "a"}) {
		t.Errorf("secrets are %+v", sa.Secrets)
	}
}
