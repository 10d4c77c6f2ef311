package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/cert"
)

// authenticationConfigMap is the ConfigMap in kube-system that aggregated servers read.
const authenticationConfigMap = "extension-apiserver-authentication"

// expiryGrace is how long an expired certificate is kept, as clocks differ.
const expiryGrace = 5 * time.Minute

// Authentication is the part of this server's configuration of authentication that
// aggregated servers need.
type Authentication struct {
	// ClientCA signs client certificates; nil if there are none.
	ClientCA dynamiccertificates.CAContentProvider
	// RequestHeaderCA signs the certificate with which this server proxies requests
	// of users, whom it names in headers. Nil if it does not proxy requests; the
	// fields below are then not used.
	RequestHeaderCA dynamiccertificates.CAContentProvider
	// UsernameHeaders and the following are the flags --requestheader-*.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes, AllowedNames []string
}

// EnsureAuthentication adds a to the ConfigMap. The entries of other servers stay,
// as each server may have authorities of its own. Expired authorities are removed.
func EnsureAuthentication(ctx context.Context, client corev1client.CoreV1Interface, a Authentication, now time.Time) error {
	if err := EnsureNamespaces(ctx, client, metav1.NamespaceSystem); err != nil {
		return err
	}
	if err := ensureAuthentication(ctx, client.ConfigMaps(metav1.NamespaceSystem), a, now); err != nil {
		return fmt.Errorf("ensure configmap %s: %w", authenticationConfigMap, err)
	}
	return nil
}

func ensureAuthentication(ctx context.Context, client corev1client.ConfigMapInterface, a Authentication, now time.Time) error {
	current, err := client.Get(ctx, authenticationConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		data, err := a.addTo(nil, now)
		if err != nil {
			return err
		}
		_, err = client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: authenticationConfigMap}, Data: data}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	data, err := a.addTo(current.Data, now)
	if err != nil || maps.Equal(data, current.Data) {
		return err
	}
	changed := current.DeepCopy()
	changed.Data = data
	_, err = client.Update(ctx, changed, metav1.UpdateOptions{})
	return err
}

// addTo returns the ConfigMap's data with a added to it.
func (a Authentication) addTo(data map[string]string, now time.Time) (map[string]string, error) {
	merged := map[string]string{}
	maps.Copy(merged, data)
	if err := addAuthorities(merged, "client-ca-file", a.ClientCA, now); err != nil {
		return nil, err
	}
	if a.RequestHeaderCA == nil {
		return merged, nil
	}
	if err := addAuthorities(merged, "requestheader-client-ca-file", a.RequestHeaderCA, now); err != nil {
		return nil, err
	}
	for key, values := range map[string][]string{
		"requestheader-username-headers":     a.UsernameHeaders,
		"requestheader-uid-headers":          a.UIDHeaders,
		"requestheader-group-headers":        a.GroupHeaders,
		"requestheader-extra-headers-prefix": a.ExtraHeaderPrefixes,
		"requestheader-allowed-names":        a.AllowedNames,
	} {
		if err := addValues(merged, key, values); err != nil {
			return nil, err
		}
	}
	return merged, nil
}

// addValues adds values to a list in JSON. Aggregated servers expect the list even
// if it is empty, except that of UID headers, which older servers do not have.
func addValues(data map[string]string, key string, values []string) error {
	list := []string{}
	if data[key] != "" {
		// An invalid list is replaced.
		if err := json.Unmarshal([]byte(data[key]), &list); err != nil {
			list = []string{}
		}
	}
	for _, v := range values {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	if len(list) == 0 && key == "requestheader-uid-headers" {
		return nil
	}
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	data[key] = string(text)
	return nil
}

// addAuthorities adds certificates to a bundle, each once.
func addAuthorities(data map[string]string, key string, ca dynamiccertificates.CAContentProvider, now time.Time) error {
	bundles := [][]byte{[]byte(data[key])}
	if ca != nil {
		bundles = append(bundles, ca.CurrentCABundleContent())
	}
	var out bytes.Buffer
	var seen [][]byte
	for i, bundle := range bundles {
		if len(bundle) == 0 {
			continue
		}
		certificates, err := cert.ParseCertsPEM(bundle)
		if err != nil && i > 0 {
			return fmt.Errorf("%s: %w", ca.Name(), err)
		}
		for _, c := range certificates {
			known := slices.ContainsFunc(seen, func(raw []byte) bool { return bytes.Equal(raw, c.Raw) })
			if known || c.NotAfter.Add(expiryGrace).Before(now) {
				continue
			}
			seen = append(seen, c.Raw)
			if err := pem.Encode(&out, &pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw}); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	if out.Len() == 0 {
		delete(data, key)
		return nil
	}
	data[key] = out.String()
	return nil
}

// changes returns a channel that receives a value when an authority has changed.
func (a Authentication) changes() <-chan struct{} {
	changed := make(listener, 1)
	for _, ca := range []dynamiccertificates.CAContentProvider{a.ClientCA, a.RequestHeaderCA} {
		if ca != nil {
			ca.AddListener(changed)
		}
	}
	return changed
}

// listener is a dynamiccertificates.Listener that holds at most one event.
type listener chan struct{}

// Enqueue implements dynamiccertificates.Listener.
func (l listener) Enqueue() {
	select {
	case l <- struct{}{}:
	default:
	}
}
