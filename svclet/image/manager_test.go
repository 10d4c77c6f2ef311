package image

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/footprint/leaks"
	"svc.dev/svc/svclet/image/credentials"
	"svc.dev/svc/svclet/image/records"
	"svc.dev/svc/svclet/pod"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// registry is a fake runtime whose pulls are controlled by the test.
type registry struct {
	mu     sync.Mutex
	images map[string]*runtimeapi.Image
	pulls  []string
	lists  int
	// inspect is the error of ImageStatus.
	inspect error
	// pull is called for each pull; nil succeeds.
	pull func(ctx context.Context, image, user string) error
}

func newRegistry(present ...string) *registry {
	r := &registry{images: map[string]*runtimeapi.Image{}}
	for _, name := range present {
		r.images[name] = &runtimeapi.Image{Id: "sha256:" + name, Size: 100}
	}
	return r
}

func (r *registry) ImageStatus(_ context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.images[image.Image], r.inspect
}

func (r *registry) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	r.pulls = append(r.pulls, strings.TrimSpace(image.Image+" "+auth.GetUsername()))
	pull := r.pull
	r.mu.Unlock()
	if pull != nil {
		if err := pull(ctx, image.Image, auth.GetUsername()); err != nil {
			return "", err
		}
	}
	if sandbox.GetMetadata().GetNamespace() == "" {
		return "", errors.New("no sandbox")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.images[image.Image] = &runtimeapi.Image{Id: "sha256:" + image.Image, Size: 12345678}
	return "sha256:" + image.Image, nil
}

func (r *registry) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists++
	var all []*runtimeapi.Image
	for _, image := range r.images {
		all = append(all, image)
	}
	return all, r.inspect
}

func (r *registry) pulled() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pulls)
}

// journal records events.
type journal struct {
	mu     sync.Mutex
	events []string
}

func (j *journal) Event(p *corev1.Pod, e pod.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, fmt.Sprintf("%s %s %s/%s: %s", e.Type, e.Reason, p.Name, e.Container, e.Message))
}

// logins are the node's credentials.
type logins []credentials.Login

func (l logins) Lookup(context.Context, string) []credentials.Login { return l }

func podOf(name, image string, policy corev1.PullPolicy) (*corev1.Pod, *corev1.Container) {
	p := &corev1.Pod{}
	p.Name, p.Namespace = name, "ns"
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: image, ImagePullPolicy: policy}}
	return p, &p.Spec.Containers[0]
}

func secret(data string) []corev1.Secret {
	s := corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(data)}}
	s.Name, s.Namespace = "s", "ns"
	return []corev1.Secret{s}
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestThePullPolicyDecidesWhetherAnImageIsPulled(t *testing.T) {
	const (
		present = `Normal Pulled p/c: Container image "app" already present on machine and can be accessed by the pod`
		pulling = `Normal Pulling p/c: Pulling image "app"`
		pulled  = `Normal Pulled p/c: Successfully pulled image "app" in 0s (0s including waiting). Image size: 12345678 bytes.`
	)
	for _, c := range []struct {
		policy  corev1.PullPolicy
		present bool
		pulls   []string
		events  []string
		reason  string
		message string
		counted string
	}{
		{corev1.PullIfNotPresent, true, nil, []string{present}, "", "", `pull_policy="ifnotpresent",pull_required="false"`},
		{corev1.PullIfNotPresent, false, []string{"app:latest"}, []string{pulling, pulled}, "", "", `present_locally="false",pull_policy="ifnotpresent",pull_required="true"`},
		{corev1.PullAlways, true, []string{"app:latest"}, []string{pulling, pulled}, "", "", `present_locally="unknown",pull_policy="always",pull_required="true"`},
		{corev1.PullNever, true, nil, []string{present}, "", "", `pull_policy="never",pull_required="false"`},
		{corev1.PullNever, false, nil, []string{
			`Warning ErrImageNeverPull p/c: Container image "app" is not present with pull policy of Never`,
			`Warning Failed p/c: Error: ErrImageNeverPull`,
		}, "ErrImageNeverPull", `Container image "app" is not present with pull policy of Never`, `pull_policy="never",pull_required="unknown"`},
	} {
		t.Run(fmt.Sprint(c.policy, c.present), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, j := newRegistry(), new(journal)
				if c.present {
					r = newRegistry("app:latest")
				}
				m := New(Options{Runtime: r, Recorder: j})
				p, container := podOf("p", "app", c.policy)
				ref, reason, err := m.Ensure(t.Context(), p, container, nil)
				if reason != c.reason || (err == nil) != (c.message == "") || err != nil && err.Error() != c.message || (ref == "") != (err != nil) {
					t.Errorf("got %q, %q, %v", ref, reason, err)
				}
				want(t, "pulls", r.pulled(), c.pulls...)
				want(t, "events", j.events, c.events...)
				metric, err := testutil.CollectAndFormat(m.metrics.requests, expfmt.TypeTextPlain, "kubelet_image_manager_ensure_image_requests_total")
				if err != nil || !strings.Contains(string(metric), c.counted) {
					t.Errorf("%v: counted %s", err, metric)
				}
			})
		})
	}
}

func TestFailuresHaveAReasonAnEventAndAMessage(t *testing.T) {
	framed := func(code codes.Code, message string) error {
		return fmt.Errorf("operation: %w", status.Error(code, message))
	}
	for _, c := range []struct {
		name    string
		image   string
		inspect error
		pull    error
		secrets []corev1.Secret
		reason  string
		message string
		event   string
	}{
		{"bad name", "UPPER", nil, nil, nil, "InvalidImageName",
			`Failed to apply default image tag "UPPER": couldn't parse image name "UPPER": invalid reference format: repository name (library/UPPER) must be lowercase`,
			`Warning InspectFailed p/c: Failed to apply default image tag "UPPER": couldn't parse`},
		{"runtime unavailable", "app", framed(codes.Unavailable, "down"), nil, nil, "ImageInspectError",
			`Failed to inspect image "app": rpc error: code = Unavailable desc = down`,
			`Warning InspectFailed p/c: Failed to inspect image "app": rpc error`},
		{"not found", "app", nil, framed(codes.NotFound, "not there"), nil, "ErrImagePull",
			"rpc error: code = NotFound desc = not there",
			`Warning Failed p/c: Failed to pull image "app": rpc error: code = NotFound desc = not there`},
		{"no code", "app", nil, framed(codes.Unknown, "not there"), nil, "ErrImagePull", "not there",
			`Warning Failed p/c: Failed to pull image "app": not there`},
		{"registry unavailable", "app", nil, framed(codes.Unknown, "RegistryUnavailable: no route"), nil, "RegistryUnavailable",
			"image pull failed for app because the registry is unavailable: no route", "Warning Failed p/c: Failed to pull image"},
		{"bad signature", "app", nil, framed(codes.Unknown, "SignatureValidationFailed: by an unknown signer"), nil, "SignatureValidationFailed",
			"image pull failed for app because the signature validation failed: by an unknown signer", "Warning Failed p/c: Failed to pull image"},
		{"bad secret", "app", nil, nil, secret(`{"auths":{"x":"hunter2"}}`), "ErrImagePull",
			`Failed to pull image "app": pull secret ns/s: not a docker configuration: invalid JSON, or an auth field that is not base64(username:password)`,
			`Warning Failed p/c: Failed to pull image "app": pull secret ns/s`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, j := newRegistry(), new(journal)
			r.inspect = c.inspect
			r.pull = func(context.Context, string, string) error { return c.pull }
			p, container := podOf("p", c.image, corev1.PullIfNotPresent)
			ref, reason, err := New(Options{Runtime: r, Recorder: j}).Ensure(t.Context(), p, container, c.secrets)
			if ref != "" || reason != c.reason || err == nil || err.Error() != c.message {
				t.Errorf("got %q, %q, %v", ref, reason, err)
			}
			events := strings.Join(j.events, "\n")
			if !strings.Contains(events, c.event) || !strings.HasSuffix(events, "Warning Failed p/c: Error: "+c.reason) || strings.Contains(events, "hunter2") {
				t.Errorf("events %s", events)
			}
		})
	}
}

func TestLoginsAreTriedInOrderPodBeforeNode(t *testing.T) {
	const config = `{"auths":{"reg.io":{"username":"broad","password":"p"},"reg.io/team":{"username":"narrow","password":"p"}}}`
	r := newRegistry()
	r.pull = func(_ context.Context, _, user string) error {
		if user != "node" {
			return fmt.Errorf("not you, %s", user)
		}
		return nil
	}
	m := New(Options{Runtime: r, Recorder: new(journal), Credentials: []Credentials{logins{{Username: "node"}, {Username: "late"}}}})
	p, c := podOf("p", "reg.io/team/app:1", corev1.PullAlways)
	if _, _, err := m.Ensure(t.Context(), p, c, secret(config)); err != nil {
		t.Fatal(err)
	}
	want(t, "pulls", r.pulled(), "reg.io/team/app:1 narrow", "reg.io/team/app:1 broad", "reg.io/team/app:1 node")

	m.options.Credentials = nil
	if _, reason, err := m.Ensure(t.Context(), p, c, secret(config)); reason != PullFailed || err.Error() != "[not you, narrow, not you, broad]" {
		t.Errorf("%s: %v", reason, err)
	}
}

func TestConcurrentRequestsForOneImageShareAPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, j := newRegistry(), new(journal)
		r.pull = func(context.Context, string, string) error {
			time.Sleep(3500 * time.Millisecond)
			return nil
		}
		m := New(Options{Runtime: r, Recorder: j})
		ensure := func(name, namespace string, secrets []corev1.Secret) func() {
			p, c := podOf(name, "app", corev1.PullAlways)
			p.Namespace = namespace
			return func() {
				if ref, _, err := m.Ensure(t.Context(), p, c, secrets); err != nil || ref != "sha256:app:latest" {
					t.Errorf("%s: %q, %v", name, ref, err)
				}
			}
		}
		var all sync.WaitGroup
		all.Go(ensure("first", "ns", nil))
		time.Sleep(time.Second)
		all.Go(ensure("second", "ns", nil))
		all.Go(ensure("elsewhere", "other", nil))
		all.Go(ensure("login", "ns", secret(`{"auths":{"docker.io":{"username":"me"}}}`)))
		all.Wait()
		got := r.pulled()
		slices.Sort(got)
		want(t, "pulls", got, "app:latest", "app:latest", "app:latest me")
		for _, event := range []string{
			`Normal Pulled first/c: Successfully pulled image "app" in 3.5s (3.5s including waiting). Image size: 12345678 bytes.`,
			`Normal Pulled second/c: Successfully pulled image "app" in 3.5s (2.5s including waiting). Image size: 12345678 bytes.`,
		} {
			if !slices.Contains(j.events, event) {
				t.Errorf("no event %s in %q", event, j.events)
			}
		}
		ensure("later", "ns", nil)()
		if n := len(r.pulled()); n != 4 {
			t.Errorf("a pull that has ended is shared: %d", n)
		}
	})
}

func TestAPullIsCancelledWithItsLastWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, j := newRegistry(), new(journal)
		ended := false
		r.pull = func(ctx context.Context, _, _ string) error {
			<-ctx.Done()
			ended = true
			return ctx.Err()
		}
		m := New(Options{Runtime: r, Recorder: j})
		var all sync.WaitGroup
		leave := make([]context.CancelFunc, 2)
		for i := range leave {
			var ctx context.Context
			ctx, leave[i] = context.WithCancel(t.Context())
			all.Go(func() {
				p, c := podOf("p", "app", corev1.PullAlways)
				if _, _, err := m.Ensure(ctx, p, c, nil); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		leave[0]()
		synctest.Wait()
		if ended {
			t.Error("the pull ended although a caller waits")
		}
		leave[1]()
		all.Wait()
		if !ended {
			t.Error("the pull continues although no caller waits")
		}
		want(t, "events", j.events, `Normal Pulling p/c: Pulling image "app"`, `Normal Pulling p/c: Pulling image "app"`)
	})
}

func TestParallelPullsAreLimited(t *testing.T) {
	for _, limit := range []int{1, 2, 0} {
		synctest.Test(t, func(t *testing.T) {
			r, j := newRegistry(), new(journal)
			var mu sync.Mutex
			now, most := 0, 0
			r.pull = func(context.Context, string, string) error {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now--
				mu.Unlock()
				return nil
			}
			m := New(Options{Runtime: r, Recorder: j, MaxParallelPulls: limit})
			began := time.Now()
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() {
					p, c := podOf(fmt.Sprint(i), fmt.Sprint("app", i), corev1.PullAlways)
					if _, _, err := m.Ensure(t.Context(), p, c, nil); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			if limit == 1 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				p, c := podOf("impatient", "impatient", corev1.PullAlways)
				if _, _, err := m.Ensure(ctx, p, c, nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the wait for a turn: %v", err)
				}
				cancel()
			}
			all.Wait()
			atOnce := limit
			if limit == 0 {
				atOnce = 4
			}
			if took := time.Since(began); most != atOnce || took != time.Duration(4/atOnce)*time.Second {
				t.Errorf("limit %d: %d at once, took %s", limit, most, took)
			}
			if limit == 1 && !strings.Contains(strings.Join(j.events, "\n"), "in 1s (4s including waiting)") {
				t.Errorf("events %q", j.events)
			}
		})
	}
}

func TestPullsOverTheRateLimitFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, j := newRegistry(), new(journal)
		m := New(Options{Runtime: r, Recorder: j, QPS: 1, Burst: 2})
		ensure := func() error {
			p, c := podOf("p", "app", corev1.PullAlways)
			_, _, err := m.Ensure(t.Context(), p, c, nil)
			return err
		}
		for i, wanted := range []string{"<nil>", "<nil>", "pull QPS exceeded"} {
			if err := ensure(); fmt.Sprint(err) != wanted {
				t.Errorf("pull %d: %v", i, err)
			}
		}
		time.Sleep(time.Second)
		if err := ensure(); err != nil {
			t.Errorf("a second later: %v", err)
		}
		if !slices.Contains(j.events, `Warning Failed p/c: Failed to pull image "app": pull QPS exceeded`) {
			t.Errorf("events %q", j.events)
		}
	})
}

func TestEventsOfAnImageVolumeAreAboutThePod(t *testing.T) {
	r, j := newRegistry(), new(journal)
	m := New(Options{Runtime: r, Recorder: j})
	p, _ := podOf("p", "", "")
	v := &corev1.ImageVolumeSource{Reference: "data@sha256:" + strings.Repeat("a", 64), PullPolicy: corev1.PullNever}
	if _, reason, err := m.EnsureVolume(t.Context(), p, v, nil); reason != NeverPull || err == nil {
		t.Errorf("%s: %v", reason, err)
	}
	want(t, "events", j.events, `Warning ErrImageNeverPull p/: Container image "`+v.Reference+`" is not present with pull policy of Never`)
}

func TestAPodWithoutTheSecretThatPulledAnImageHasToPullIt(t *testing.T) {
	r, j := newRegistry("preloaded:latest"), &journal{}
	r.pull = func(_ context.Context, _, user string) error {
		if user != "alice" {
			return errors.New("unauthorized")
		}
		return nil
	}
	pulls, err := records.Open(t.TempDir(), "v1", records.Policy{Verification: kubeletconfig.NeverVerifyPreloadedImages}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	m := New(Options{Runtime: r, Recorder: j, Records: pulls})
	alice := secret(`{"auths": {"registry.example": {"username": "alice", "password": "1"}}}`)
	for _, step := range []struct {
		image   string
		policy  corev1.PullPolicy
		secrets []corev1.Secret
		reason  string
		pulls   int
	}{
		{"registry.example/app", corev1.PullIfNotPresent, alice, "", 1},
		{"registry.example/app", corev1.PullIfNotPresent, alice, "", 1},
		{"registry.example/app", corev1.PullNever, alice, "", 1},
		{"registry.example/app", corev1.PullIfNotPresent, nil, PullFailed, 2},
		{"registry.example/app", corev1.PullNever, nil, NeverPull, 2},
		{"preloaded", corev1.PullNever, nil, "", 2},
	} {
		p, c := podOf("p", step.image, step.policy)
		if _, reason, _ := m.Ensure(t.Context(), p, c, step.secrets); reason != step.reason {
			t.Errorf("%+v: reason %q", step, reason)
		} else if len(r.pulled()) != step.pulls {
			t.Errorf("%+v: pulls %q", step, r.pulled())
		}
	}
}

func TestAnInvalidPullSecretMattersOnlyIfTheImageNeedsOne(t *testing.T) {
	r := newRegistry("preloaded:latest")
	pulls, err := records.Open(t.TempDir(), "v1", records.Policy{Verification: kubeletconfig.NeverVerifyPreloadedImages}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	m := New(Options{Runtime: r, Recorder: &journal{}, Records: pulls})
	invalid := secret("{")
	for _, step := range []struct {
		image   string
		policy  corev1.PullPolicy
		secrets []corev1.Secret
		reason  string
	}{
		{"preloaded", corev1.PullIfNotPresent, invalid, ""},
		{"preloaded", corev1.PullNever, invalid, ""},
		{"registry.example/free", corev1.PullIfNotPresent, nil, ""},
		{"registry.example/free", corev1.PullIfNotPresent, invalid, ""},
		{"registry.example/app", corev1.PullIfNotPresent, secret(`{"auths": {"registry.example": {"username": "alice", "password": "1"}}}`), ""},
		{"registry.example/app", corev1.PullIfNotPresent, invalid, PullFailed},
		{"absent", corev1.PullIfNotPresent, invalid, PullFailed},
		{"absent", corev1.PullNever, invalid, NeverPull},
	} {
		p, c := podOf("p", step.image, step.policy)
		if _, reason, err := m.Ensure(t.Context(), p, c, step.secrets); reason != step.reason {
			t.Errorf("%s, %s: reason %q (%v), want %q", step.image, step.policy, reason, err, step.reason)
		}
	}
}
