package localvolume

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restfake "k8s.io/client-go/rest/fake"
	clocks "k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"svc.dev/svc/apis/localpath"
)

// deleted returns a volume of a node that is being deleted.
func deleted(name, node, dir string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{localpath.NodeLabel: node}, Finalizers: []string{localpath.Finalizer}, DeletionTimestamp: new(metav1.Now()),
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": localpath.Provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: localpath.Directory(dir, name)}},
		},
	}
}

// watched returns a client for a watch that has what c has of node n, and never ends.
func watched(t *testing.T, c client.Client) rest.Interface {
	return &restfake.RESTClient{
		GroupVersion: corev1.SchemeGroupVersion, VersionedAPIPath: "/api/v1", NegotiatedSerializer: clientgoscheme.Codecs.WithoutConversion(),
		Client: restfake.CreateHTTPClient(func(r *http.Request) (*http.Response, error) {
			answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}}
			if r.URL.Query().Get("labelSelector") != localpath.NodeLabel+"=n" {
				t.Errorf("request %s", r.URL)
			}
			if r.URL.Query().Get("watch") != "" {
				body, _ := io.Pipe()
				answer.Body = body
				return answer, nil
			}
			list := &corev1.PersistentVolumeList{}
			if err := c.List(r.Context(), list, client.MatchingLabels{localpath.NodeLabel: "n"}); err != nil {
				t.Error(err)
			}
			list.TypeMeta, list.ResourceVersion = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeList"}, "1"
			text, err := json.Marshal(list)
			answer.Body = io.NopCloser(strings.NewReader(string(text)))
			return answer, err
		}),
	}
}

// TestADeletedVolumeWithoutADirectoryIsReleased: it was never mounted, or the agent was stopped
// between the removal of its directory and that of the finalizer.
func TestADeletedVolumeWithoutADirectoryIsReleased(t *testing.T) {
	for name, refused := range map[string]bool{"at the start of the agent": false, "later, if there was none or the API server refused to answer": true} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "local-volumes")
			released := make(chan string)
			var refuse atomic.Bool
			refuse.Store(refused)
			c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(deleted("pv", "n", dir), deleted("other", "another", dir)).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
					err := c.Patch(ctx, o, p, options...)
					released <- o.GetName()
					return err
				},
				List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, options ...client.ListOption) error {
					if refuse.Load() {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, "", nil)
					}
					return c.List(ctx, l, options...)
				},
			}).Build()
			clock := clocktesting.NewFakeClock(time.Now())
			m := New(Options{Dir: dir, Node: "n", Client: c, Core: watched(t, c), Clock: clock, Remove: func(context.Context, string) error { return nil }})
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { m.Run(ctx) })
			if refused {
				waits := func(context.Context) (bool, error) { return clock.HasWaiters(), nil }
				if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, waits); err != nil {
					t.Fatal(err)
				}
				refuse.Store(false)
				clock.Step(searchPeriod)
			}
			if got := <-released; got != "pv" {
				t.Errorf("released %s", got)
			}
			cancel()
			running.Wait()
		})
	}
}

// TestTheSearchForAFirstVolume asks only without a directory, and again if the API server hangs.
func TestTheSearchForAFirstVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(deleted("pv", "n", "/d")).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, options ...client.ListOption) error {
				if lists++; lists > 1 {
					return c.List(ctx, l, options...)
				}
				<-ctx.Done()
				return ctx.Err()
			},
		}).Build()
		m := New(Options{Node: "n", Client: c, Clock: clocks.RealClock{}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if found := m.awaitFirst(ctx); !found || lists != 2 {
			t.Errorf("found %t after %d lists", found, lists)
		}
		m.Created()
		if found := m.awaitFirst(ctx); !found || lists != 2 {
			t.Errorf("with a directory: %t after %d lists", found, lists)
		}
	})
}
