package objects

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// requested is a store with a pod that has a certificate in a volume.
type requested struct {
	*server
	store   *Store
	changed changes
	clock   *clocktesting.FakeClock
	pod     *corev1.Pod

	mutex    sync.Mutex
	warnings []string
}

func newRequested(t *testing.T) *requested {
	t.Helper()
	r := &requested{server: newServer(t), clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	r.put("namespaces/n/serviceaccounts/gardener", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{UID: "account"}})
	r.put("nodes/node1", &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "node"}})
	r.store, r.changed = newStore(t, r.server, func(o *Options) {
		o.Clock, o.NodeName = r.clock, "node1"
		o.Warn = func(pod *corev1.Pod, reason, message string) {
			r.mutex.Lock()
			defer r.mutex.Unlock()
			r.warnings = append(r.warnings, fmt.Sprintf("%s %s: %s", pod.Name, reason, message))
		}
	})
	r.pod = podWithSource("p", corev1.VolumeProjection{PodCertificate: r.source()})
	r.store.Register(r.pod)
	eventually(t, "the watches", func() bool { return r.watching() == 2 })
	return r
}

func (r *requested) source() *corev1.PodCertificateProjection {
	return &corev1.PodCertificateProjection{SignerName: "example.com/signer", KeyType: "ED25519", UserAnnotations: map[string]string{"example.com/a": "b"}}
}

// get returns the chain, or the error. It lets the time pass for which a pod waits for its
// first certificate.
func (r *requested) get(t *testing.T) string {
	t.Helper()
	result := make(chan string, 1)
	go func() {
		key, chain, err := r.store.PodCertificate(t.Context(), r.pod, "v", 0, r.source())
		switch {
		case err != nil:
			result <- err.Error()
		case !strings.HasPrefix(string(key), "-----BEGIN PRIVATE KEY-----"):
			result <- "without a key"
		default:
			result <- string(chain)
		}
	}()
	for {
		select {
		case got := <-result:
			return got
		case <-time.After(time.Millisecond):
			r.clock.Step(errorTimeout / 4)
		}
	}
}

// decide gives the request of a number a final state.
func (r *requested) decide(number int, state, chain string, life time.Duration) {
	at := fmt.Sprintf("namespaces/n/podcertificaterequests/p-%d", number)
	r.server.mutex.Lock()
	request := r.held[at].(*certificatesv1.PodCertificateRequest).DeepCopy()
	r.server.mutex.Unlock()
	now := r.clock.Now()
	request.Status = certificatesv1.PodCertificateRequestStatus{Conditions: []metav1.Condition{{Type: state, Status: metav1.ConditionTrue, Reason: "Reason", Message: "why"}}}
	if chain != "" {
		refresh, end := metav1.NewTime(now.Add(life/2)), metav1.NewTime(now.Add(life))
		request.Status.CertificateChain, request.Status.BeginRefreshAt, request.Status.NotAfter = chain, &refresh, &end
	}
	r.put(at, request)
}

func pemOf(content string) string {
	return "-----BEGIN CERTIFICATE-----\n" + content + "\n-----END CERTIFICATE-----\n"
}

func TestACertificateIsRequestedIssuedAndRenewed(t *testing.T) {
	r := newRequested(t)
	if got, want := r.get(t), `credential bundle is not issued yet: PodCertificateRequest p-1 for signer "example.com/signer" is pending`; got != want {
		t.Fatalf("at first: %q, want %q", got, want)
	}
	spec := r.held["namespaces/n/podcertificaterequests/p-1"].(*certificatesv1.PodCertificateRequest).Spec
	if spec.ServiceAccountUID != "account" || spec.NodeName != "node1" || spec.NodeUID != "node" || spec.PodUID != "p" {
		t.Errorf("requested %+v", spec)
	}
	r.decide(1, certificatesv1.PodCertificateRequestConditionTypeIssued, pemOf("MQ=="), 2*time.Hour)
	if pods := r.changed.wait(t); !slices.Equal(pods, []types.UID{"p"}) {
		t.Errorf("told of %v", pods)
	}
	if got := r.get(t); got != pemOf("MQ==") {
		t.Errorf("when issued: %q", got)
	}

	// The cleaner removes the request; the certificate stays.
	r.remove("namespaces/n/podcertificaterequests/p-1")
	for range 6 { // the checks of the alarm
		eventually(t, "the alarm is set", r.clock.HasWaiters)
		r.clock.Step(alarmCheck)
	}
	if pods := r.changed.wait(t); !slices.Equal(pods, []types.UID{"p"}) {
		t.Errorf("told of %v", pods)
	}
	if got := r.get(t); got != pemOf("MQ==") {
		t.Errorf("while it is renewed: %q", got)
	}
	r.decide(2, certificatesv1.PodCertificateRequestConditionTypeIssued, pemOf("Mg=="), 2*time.Hour)
	r.changed.wait(t)
	if got := r.get(t); got != pemOf("Mg==") {
		t.Errorf("when renewed: %q", got)
	}
	if n := r.asked("create namespaces/n/podcertificaterequests"); n != 2 {
		t.Errorf("%d requests", n)
	}
	r.store.Unregister("p")
	eventually(t, "only services are watched", func() bool { return r.watching() == 1 })
	if len(r.store.certificates.byKey) > 0 || r.store.alarm.timer != nil {
		t.Error("certificates of a pod that is gone are kept")
	}
	if len(r.warnings) > 0 {
		t.Errorf("warnings %v", r.warnings)
	}
}

func TestARefusedCertificateIsAnEventAndNotRequestedAgain(t *testing.T) {
	for state, verb := range map[string]string{"Denied": "was denied", "Failed": "failed"} {
		t.Run(state, func(t *testing.T) {
			r := newRequested(t)
			r.get(t)
			r.decide(1, state, "", 0)
			r.changed.wait(t)
			want := `PodCertificateRequest n/p-1 for signer "example.com/signer" ` + verb + `, reason="Reason", message="why"`
			for range 2 {
				if got := r.get(t); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			if want := []string{"p " + state + ": " + want}; !slices.Equal(r.warnings, want) {
				t.Errorf("warnings %q, want %q", r.warnings, want)
			}
			if n := r.asked("create namespaces/n/podcertificaterequests"); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestARequestThatCannotBeCreatedOrIsDeletedIsRepeatedAfterABackOff(t *testing.T) {
	r := newRequested(t)
	r.setRefuse(http.StatusForbidden)
	if got := r.get(t); !strings.HasPrefix(got, "while fetching service account: ") {
		t.Errorf("refused: %q", got)
	}
	r.setRefuse(0)
	eventually(t, "the alarm is set", r.clock.HasWaiters)
	r.clock.Step(2 * time.Second)
	r.changed.wait(t)
	if got := r.get(t); !strings.HasSuffix(got, "is pending") {
		t.Errorf("after the back-off: %q", got)
	}
	number := r.asked("create namespaces/n/podcertificaterequests")
	eventually(t, "it has been seen", func() bool {
		r.store.mutex.Lock()
		defer r.store.mutex.Unlock()
		return len(r.store.certificates.requests.held) == 1
	})
	r.remove(fmt.Sprintf("namespaces/n/podcertificaterequests/p-%d", number))
	r.changed.wait(t)
	if got, want := r.get(t), fmt.Sprintf("PodCertificateRequest p-%d appears to have been deleted", number); got != want {
		t.Errorf("after the deletion: %q, want %q", got, want)
	}
	eventually(t, "the alarm is set", r.clock.HasWaiters)
	r.clock.Step(3 * time.Second)
	r.changed.wait(t)
	if got := r.get(t); !strings.HasSuffix(got, "is pending") {
		t.Errorf("after the back-off: %q", got)
	}
}
