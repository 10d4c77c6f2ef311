package hostcerts

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	clocktesting "k8s.io/utils/clock/testing"
)

// host is a fake host, which several keepers share.
type host struct {
	client   *fake.Clientset
	services *aggregatorfake.Clientset
	clock    *clocktesting.FakeClock
}

func newHost(services ...runtime.Object) *host {
	return &host{fake.NewClientset(), aggregatorfake.NewSimpleClientset(services...), clocktesting.NewFakeClock(start)}
}

func (h *host) keeper(t *testing.T, o Options) *Keeper {
	t.Helper()
	k, err := New(Config{
		Options: o, Client: h.client, APIServices: h.services, Clock: h.clock,
		EtcdServers: []string{"https://etcd-0.etcd:2379"}, Directory: filepath.Join(t.TempDir(), "made"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// run runs a keeper until the end of the test, and returns when it watches: a fake client
// does not tell a watch of what has changed since the list.
func (h *host) run(t *testing.T, k *Keeper) *WithT {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	g.Eventually(func() int { return watches(&h.client.Fake) }).Should(BeNumerically(">=", len(k.secrets)))
	if k.serving != nil {
		g.Eventually(func() int { return watches(&h.services.Fake) }).Should(BeNumerically(">=", 1))
	}
	return g
}

// watches is how many watches there have been.
func watches(of *clienttesting.Fake) (n int) {
	for _, action := range of.Actions() {
		if action.GetVerb() == "watch" {
			n++
		}
	}
	return n
}

func (h *host) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	s, err := h.client.CoreV1().Secrets("svc-system").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (h *host) caBundle(ctx context.Context, name string) []byte {
	s, err := h.services.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return s.Spec.CABundle
}

var servingOptions = Options{ServingSecret: "svc-system/svc-serving", ServingService: "svc-apiserver"}

func apiService(name, namespace, service string) *apiregistrationv1.APIService {
	s := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if service != "" {
		s.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: namespace, Name: service}
	}
	return s
}

func TestOneOfSeveralServersMakesTheSecretAndAllUseIt(t *testing.T) {
	h := newHost()
	keepers := make([]*Keeper, 8)
	for i := range keepers {
		keepers[i] = h.keeper(t, Options{"svc-system/svc-serving", "svc-apiserver", "svc-system/svc-etcd"})
	}
	var starting sync.WaitGroup
	for _, k := range keepers {
		starting.Go(func() {
			if err := k.Start(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	want := h.secret(t, "svc-serving").Data
	for _, k := range keepers {
		certificate, key := k.Serving().CurrentCertKeyContent()
		if !bytes.Equal(certificate, want["tls.crt"]) || !bytes.Equal(key, want["tls.key"]) {
			t.Error("a server has another certificate than the Secret")
		}
	}
	for _, action := range h.client.Actions() {
		if action.GetResource().Resource != "secrets" || action.GetVerb() == "update" || action.GetVerb() == "delete" {
			t.Errorf("unexpected %s of %s", action.GetVerb(), action.GetResource().Resource)
		}
	}
}

func TestServerUsesWhatAnotherHasRenewedAtTheSameTime(t *testing.T) {
	h := newHost()
	k := h.keeper(t, servingOptions)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.clock.Step(leafLifetime - leafRenewal + time.Minute)
	var other []byte
	h.client.PrependReactor("update", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if other != nil {
			t.Error("written again, although another server has renewed it")
			return false, nil, nil
		}
		won := action.(clienttesting.UpdateAction).GetObject().(*corev1.Secret).DeepCopy()
		fresh, _ := mustRenew(t, servingBundle(k.service), k.secrets[0].data, h.clock.Now())
		won.Data, other = fresh, fresh["tls.crt"]
		if err := h.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), won, won.Namespace); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), won.Name, nil)
	})
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if certificate, _ := k.Serving().CurrentCertKeyContent(); !bytes.Equal(certificate, other) || other == nil {
		t.Error("the server does not use the certificate that the other one has made")
	}
}

func TestOnlyAPIServicesOfTheServiceGetTheAuthorities(t *testing.T) {
	h := newHost(
		apiService("v1.apps.svc.dev", "svc-system", "svc-apiserver"),
		apiService("v1.other", "svc-system", "other"),
		apiService("v1.elsewhere", "elsewhere", "svc-apiserver"),
		apiService("v1.apps", "", ""),
	)
	g := h.run(t, h.keeper(t, servingOptions))
	want := h.secret(t, "svc-serving").Data[authoritiesKey]
	g.Eventually(func() []byte { return h.caBundle(t.Context(), "v1.apps.svc.dev") }).Should(Equal(want))

	// One that is registered later, and one that another client has changed.
	services := h.services.ApiregistrationV1().APIServices()
	_, err := services.Create(t.Context(), apiService("v1.batch.svc.dev", "svc-system", "svc-apiserver"), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	changed := apiService("v1.apps.svc.dev", "svc-system", "svc-apiserver")
	changed.Spec.CABundle = []byte("wrong")
	_, err = services.Update(t.Context(), changed, metav1.UpdateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{"v1.batch.svc.dev", "v1.apps.svc.dev"} {
		g.Eventually(func() []byte { return h.caBundle(t.Context(), name) }).Should(Equal(want), name)
	}
	for _, name := range []string{"v1.other", "v1.elsewhere", "v1.apps"} {
		g.Expect(h.caBundle(t.Context(), name)).To(BeNil(), name)
	}
}

// listed is a lister of APIServices.
type listed []*apiregistrationv1.APIService

func (l listed) List(labels.Selector) ([]*apiregistrationv1.APIService, error) { return l, nil }

func TestTheErrorOfAnAPIServiceThatTheServerMayNotWriteSaysWhichRightItLacks(t *testing.T) {
	h := newHost()
	h.services.PrependReactor("patch", "apiservices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(apiregistrationv1.Resource("apiservices"), action.(clienttesting.PatchAction).GetName(), errors.New("no"))
	})
	err := h.keeper(t, servingOptions).sync(t.Context(), listed{apiService("v1.example.com.svc.dev", "svc-system", "svc-apiserver")})
	const want = "let the server patch it by a ClusterRole like svc-apiserver-registrar"
	if err == nil || !strings.HasPrefix(err.Error(), "apiservice v1.example.com.svc.dev: ") || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want one that ends with %q", err, want)
	}
}

func TestDeletedSecretIsMadeAgain(t *testing.T) {
	h := newHost(apiService("v1.apps.svc.dev", "svc-system", "svc-apiserver"))
	k := h.keeper(t, servingOptions)
	g := h.run(t, k)
	before, _ := k.Serving().CurrentCertKeyContent()
	g.Expect(h.client.CoreV1().Secrets("svc-system").Delete(t.Context(), "svc-serving", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(func() []byte {
		certificate, _ := k.Serving().CurrentCertKeyContent()
		return certificate
	}).ShouldNot(Equal(before))
	g.Eventually(func() []byte { return h.caBundle(t.Context(), "v1.apps.svc.dev") }).
		Should(Equal(h.secret(t, "svc-serving").Data[authoritiesKey]))
}

func TestErrorOfTheHostIsRetried(t *testing.T) {
	h := newHost(apiService("v1.apps.svc.dev", "svc-system", "svc-apiserver"))
	failures := make(chan struct{}, 1)
	failures <- struct{}{}
	failed := make(chan struct{})
	h.services.PrependReactor("patch", "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) {
		select {
		case <-failures:
			close(failed)
			return true, nil, apierrors.NewServiceUnavailable("away")
		default:
			return false, nil, nil
		}
	})
	g := h.run(t, h.keeper(t, servingOptions))
	g.Eventually(failed).Should(BeClosed())
	g.Eventually(func() []byte {
		h.clock.Step(time.Second)
		return h.caBundle(t.Context(), "v1.apps.svc.dev")
	}).ShouldNot(BeEmpty())
}

// A client that the host's aggregator stands for connects for each request, and
// trusts what is in the APIService at that time.
func TestNoRequestFailsWhileCertificatesAndAuthoritiesAreRenewed(t *testing.T) {
	h := newHost(apiService("v1.apps.svc.dev", "svc-system", "svc-apiserver"))
	k := h.keeper(t, servingOptions)
	g := h.run(t, k)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(k.Serving().CurrentCertKeyContent())
		return &pair, err
	}}
	server.StartTLS()
	defer server.Close()
	g.Eventually(func() []byte { return h.caBundle(t.Context(), "v1.apps.svc.dev") }).ShouldNot(BeEmpty())

	request := func() error {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(h.caBundle(t.Context(), "v1.apps.svc.dev"))
		client := http.Client{Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: serviceHost, Time: h.clock.Now, MinVersion: tls.VersionTLS12},
			DisableKeepAlives: true,
		}}
		answer, err := client.Get(server.URL)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		return err
	}
	renewals, authorities := 0, map[string]bool{}
	current, _ := k.Serving().CurrentCertKeyContent()
	for h.clock.Since(start) < 11*365*24*time.Hour {
		g.Eventually(h.clock.HasWaiters).Should(BeTrue())
		h.clock.Step(10 * 24 * time.Hour)
		g.Expect(request()).To(Succeed(), h.clock.Now().String())
		if now, _ := k.Serving().CurrentCertKeyContent(); !bytes.Equal(now, current) {
			current = now
			renewals++
		}
		authorities[string(h.secret(t, "svc-serving").Data[signerName+".crt"])] = true
	}
	g.Expect(renewals).To(BeNumerically(">", 40))
	g.Expect(authorities).To(HaveLen(2))
}

type enqueued chan struct{}

func (e enqueued) Enqueue() { e <- struct{}{} }

func TestListenersLearnOfANewCertificate(t *testing.T) {
	h := newHost()
	k := h.keeper(t, servingOptions)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	listener := make(enqueued, 2)
	k.Serving().AddListener(listener)
	for range 2 { // the second finds nothing to renew
		h.clock.SetTime(start.Add(leafLifetime - leafRenewal + time.Minute))
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(listener) != 1 {
		t.Errorf("%d notifications, want 1", len(listener))
	}
}

func TestEtcdsClientIsInFilesThatChangeAtOnce(t *testing.T) {
	h := newHost()
	k := h.keeper(t, Options{EtcdSecret: "svc-system/svc-etcd"})
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, ok := k.Etcd()
	if !ok {
		t.Fatal("no files")
	}
	first, err := tls.LoadX509KeyPair(files.Client, files.Client)
	if err != nil {
		t.Fatal(err)
	}
	h.clock.Step(leafLifetime - leafRenewal + time.Minute)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, err := tls.LoadX509KeyPair(files.Client, files.Client)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(first.Certificate[0], second.Certificate[0]) {
		t.Error("the file has the certificate of before")
	}
	entries, err := os.ReadDir(k.Directory)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("files %v, want two", entries)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v (%v), want 0600", entry.Name(), info.Mode(), err)
		}
	}
}

func TestAMissingNamespaceIsNamedWithTheFlag(t *testing.T) {
	g := NewWithT(t)
	h := newHost()
	h.client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "svc-system")
	})
	g.Expect(h.keeper(t, servingOptions).Start(t.Context())).To(MatchError(
		`--serving-secret: secret svc-system/svc-serving: namespaces "svc-system" not found: create it first, or name another Secret`))
}

func TestBrokenSecretIsNotReplaced(t *testing.T) {
	g := NewWithT(t)
	h := newHost()
	broken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "svc-system", Name: "svc-serving"}, Data: map[string][]byte{"tls.crt": []byte("x")}}
	_, err := h.client.CoreV1().Secrets("svc-system").Create(t.Context(), broken, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h.keeper(t, servingOptions).Start(t.Context())).To(MatchError(And(
		ContainSubstring("secret svc-system/svc-serving: tls.crt: "), ContainSubstring("delete the Secret to have a new one made"))))
	g.Expect(h.secret(t, "svc-serving").Data).To(Equal(broken.Data))
}
