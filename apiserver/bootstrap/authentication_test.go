package bootstrap

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes/fake"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestAuthenticationIsAddedToTheEntriesOfOtherServers(t *testing.T) {
	ours, theirs, expired, proxy := authority(t, "ours", noon.Add(time.Hour)), authority(t, "theirs", noon.Add(time.Hour)), authority(t, "expired", noon.Add(-time.Hour)), authority(t, "proxy", noon.Add(time.Hour))
	full := Authentication{
		ClientCA:            provider(t, ours),
		RequestHeaderCA:     provider(t, proxy),
		UsernameHeaders:     []string{"X-Remote-User"},
		GroupHeaders:        []string{"X-Remote-Group"},
		ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
	}
	for _, tc := range []struct {
		name string
		auth Authentication
		data map[string]string
		want map[string]string
	}{
		{name: "nothing configured", want: map[string]string{}},
		{name: "client certificates only", auth: Authentication{ClientCA: provider(t, ours)}, want: map[string]string{"client-ca-file": ours}},
		{
			name: "everything", auth: full,
			want: map[string]string{
				"client-ca-file":                     ours,
				"requestheader-client-ca-file":       proxy,
				"requestheader-username-headers":     `["X-Remote-User"]`,
				"requestheader-group-headers":        `["X-Remote-Group"]`,
				"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
				"requestheader-allowed-names":        `[]`,
			},
		},
		{
			name: "another server's", auth: Authentication{ClientCA: provider(t, ours), RequestHeaderCA: provider(t, proxy), UsernameHeaders: []string{"X-Remote-User"}, AllowedNames: []string{"front"}, UIDHeaders: []string{"X-Remote-Uid"}},
			data: map[string]string{
				"client-ca-file":                 theirs + ours,
				"requestheader-username-headers": `["X-User","X-Remote-User"]`,
				"requestheader-group-headers":    `broken`,
				"note":                           "kept",
			},
			want: map[string]string{
				"client-ca-file":                     theirs + ours,
				"requestheader-client-ca-file":       proxy,
				"requestheader-username-headers":     `["X-User","X-Remote-User"]`,
				"requestheader-uid-headers":          `["X-Remote-Uid"]`,
				"requestheader-group-headers":        `[]`,
				"requestheader-extra-headers-prefix": `[]`,
				"requestheader-allowed-names":        `["front"]`,
				"note":                               "kept",
			},
		},
		{name: "an expired authority", auth: Authentication{ClientCA: provider(t, ours)}, data: map[string]string{"client-ca-file": expired}, want: map[string]string{"client-ca-file": ours}},
		{name: "a broken bundle", auth: Authentication{ClientCA: provider(t, ours)}, data: map[string]string{"client-ca-file": "garbage"}, want: map[string]string{"client-ca-file": ours}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := fake.NewClientset()
			if tc.data != nil {
				client = fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: authenticationConfigMap, Namespace: "kube-system"}, Data: tc.data})
			}
			for range 2 {
				if err := EnsureAuthentication(t.Context(), client.CoreV1(), tc.auth, noon); err != nil {
					t.Fatal(err)
				}
			}
			got, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), authenticationConfigMap, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for key, value := range tc.want {
				if got.Data[key] != value {
					t.Errorf("%s = %q\nwant %q", key, got.Data[key], value)
				}
			}
			if len(got.Data) != len(tc.want) {
				t.Errorf("%d keys, want %d: %v", len(got.Data), len(tc.want), got.Data)
			}
			if n := strings.Count(strings.Join(writes(client), ","), "configmaps"); n != 1 {
				t.Errorf("written %d times, want once", n)
			}
		})
	}
}

func TestAChangeOfAnAuthorityWakesTheStep(t *testing.T) {
	ca := &changing{}
	wake := Authentication{ClientCA: ca}.changes()
	ca.listener.Enqueue()
	ca.listener.Enqueue()
	select {
	case <-wake:
	default:
		t.Error("no value was received")
	}
}

// changing is an authority that reports changes to its listener.
type changing struct {
	dynamiccertificates.CAContentProvider
	listener dynamiccertificates.Listener
}

func (c *changing) AddListener(l dynamiccertificates.Listener) { c.listener = l }

func provider(t *testing.T, bundle string) dynamiccertificates.CAContentProvider {
	t.Helper()
	ca, err := dynamiccertificates.NewStaticCAContent("test", []byte(bundle))
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// authority is a self-signed certificate in PEM.
func authority(t *testing.T, name string, notAfter time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: notAfter.Add(-time.Hour), NotAfter: notAfter, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
