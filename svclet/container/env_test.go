package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func testPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u-1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}
}

func TestErrorsNameTheMissingObject(t *testing.T) {
	objects := newFakeObjects()
	objects.configMaps["shop/cm"] = &corev1.ConfigMap{Data: map[string]string{"k": "v"}}
	objects.secrets["shop/s"] = &corev1.Secret{Data: map[string][]byte{"k": []byte("hidden")}}
	configMap := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
	}
	secret := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
	}
	for _, test := range []struct {
		name    string
		source  *corev1.EnvVarSource
		objects Objects
		want    string
	}{
		{name: "a ConfigMap", source: configMap("none", "k", nil), objects: objects, want: `configmap "none" not found`},
		{name: "a Secret", source: secret("none", "k", nil), objects: objects, want: `secret "none" not found`},
		{name: "a key of a ConfigMap", source: configMap("cm", "none", nil), objects: objects, want: "couldn't find key none in ConfigMap shop/cm"},
		{name: "a key of a Secret", source: secret("s", "none", nil), objects: objects, want: "couldn't find key none in Secret shop/s"},
		{name: "an API server, for a ConfigMap", source: configMap("cm", "k", nil), want: "couldn't get configMap shop/cm, no kubeClient defined"},
		{name: "an API server, for a Secret", source: secret("s", "k", ptr.To(true)), want: "couldn't get secret shop/s, no kubeClient defined"},
		{name: "an optional ConfigMap", source: configMap("none", "k", ptr.To(true)), objects: objects},
		{name: "an optional Secret", source: secret("none", "k", ptr.To(true)), objects: objects},
		{name: "an optional key", source: secret("s", "none", ptr.To(true)), objects: objects},
		{name: "a field", source: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.hostIPC"}}, objects: objects,
			want: "unsupported fieldPath: spec.hostIPC"},
		{name: "a resource", source: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.pods"}}, objects: objects,
			want: "unsupported container resource : limits.pods"},
		{name: "another container", objects: objects,
			source: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu", ContainerName: "none"}},
			want:   "container none not found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := testPod()
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "V", ValueFrom: test.source}}
			config, err := Config(t.Context(), testInput(pod, &pod.Spec.Containers[0], test.objects))
			switch {
			case test.want != "" && (err == nil || err.Error() != test.want):
				t.Errorf("error %v, want %q", err, test.want)
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want == "" && len(config.Envs) != 0:
				t.Errorf("variables %v, want none", config.Envs)
			}
		})
	}
}

func TestAnErrorThatIsNotNotFoundIsNeverOptional(t *testing.T) {
	pod := testPod()
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Optional: ptr.To(true)}}}
	_, err := Config(t.Context(), testInput(pod, &pod.Spec.Containers[0], brokenObjects{newFakeObjects()}))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

type brokenObjects struct{ *fakeObjects }

func (brokenObjects) ConfigMap(context.Context, string, string) (*corev1.ConfigMap, error) {
	return nil, context.DeadlineExceeded
}

func TestAnObjectIsReadOnce(t *testing.T) {
	objects := newFakeObjects()
	objects.configMaps["shop/cm"] = &corev1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}}
	pod := testPod()
	cm := corev1.LocalObjectReference{Name: "cm"}
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: cm}}}
	for _, key := range []string{"a", "b"} {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{
			Name: "V" + key, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: cm, Key: key}}})
	}
	if _, err := Config(t.Context(), testInput(pod, &pod.Spec.Containers[0], objects)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"configmap shop/cm"}; !slices.Equal(objects.reads, want) {
		t.Errorf("read %v, want %v", objects.reads, want)
	}
}

func TestServiceVariables(t *testing.T) {
	service := func(name, ip string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}},
		}
	}
	objects := newFakeObjects()
	objects.services["default"] = []*corev1.Service{service("kubernetes", "10.0.0.1"), service("other", "10.0.0.2")}
	objects.services["shop"] = []*corev1.Service{service("db", "10.0.0.3"), service("headless", "None"), service("external", "")}
	for _, test := range []struct {
		name  string
		links *bool
		want  []string
	}{
		{"by default", nil, []string{"DB_SERVICE_HOST", "KUBERNETES_SERVICE_HOST"}},
		{"without links", ptr.To(false), []string{"KUBERNETES_SERVICE_HOST"}},
	} {
		pod := testPod()
		pod.Spec.EnableServiceLinks = test.links
		variables, err := serviceVariables(t.Context(), objects, pod)
		if err != nil {
			t.Fatal(err)
		}
		var hosts []string
		for name := range variables {
			if strings.HasSuffix(name, "_HOST") {
				hosts = append(hosts, name)
			}
		}
		slices.Sort(hosts)
		if !slices.Equal(hosts, test.want) {
			t.Errorf("%s: %v, want %v", test.name, hosts, test.want)
		}
	}
	objects.services["shop"] = append(objects.services["shop"], service("kubernetes", "10.0.0.9"))
	variables, err := serviceVariables(t.Context(), objects, testPod())
	if err != nil || variables["KUBERNETES_SERVICE_HOST"] != "10.0.0.9" {
		t.Errorf("a service of that name in the pod's namespace: %q, %v", variables["KUBERNETES_SERVICE_HOST"], err)
	}
}

func TestFileKeyRefReadsAVariable(t *testing.T) {
	for _, test := range []struct{ content, key, want, err string }{
		{content: "A='1'\nB='2'", key: "B", want: "2"},
		{content: "# comment\n\n  \tA='1' # more\n", key: "A", want: "1"},
		{content: "A='line 1\nline 2\n'\nB='2'\n", key: "A", want: "line 1\nline 2\n"},
		{content: "A='x\n# no comment\nB=2'\nB='2'\n", key: "B", want: "2"},
		{content: "A='$B \"x\" \\n'", key: "A", want: `$B "x" \n`},
		{content: "A= 'x'\nB='2'", key: "A"},
		{content: "A='1'", key: "NONE"},
		{content: "", key: "A"},
		{content: "A", key: "A", err: "missing '='"},
		{content: "='x'", key: "A", err: "name must come right before"},
		{content: "A ='x'", key: "A", err: "name must come right before"},
		{content: "A=x", key: "A", err: "single quotes"},
		{content: "A=\"x\"", key: "A", err: "single quotes"},
		{content: "A='x", key: "A", err: "unclosed"},
		{content: "A='x'y", key: "A", err: "after closing quote"},
	} {
		got, err := envFileValue(test.content, test.key)
		if got != test.want || test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s of %q: %q, %v, want %q, %q", test.key, test.content, got, err, test.want, test.err)
		}
	}
}

func FuzzVariablesOfAFile(f *testing.F) {
	f.Add("A='1'\nB='2' # x\n", "A")
	f.Add("A= '1'", "A")
	f.Add("#\r\n=", "")
	f.Fuzz(func(t *testing.T, content, key string) {
		value, err := envFileValue(content, key)
		if err == nil && value != "" && !strings.Contains(content, "='"+value+"'") {
			t.Errorf("%q has %s='%s' from nowhere", content, key, value)
		}
	})
}

func TestFileKeyRefStaysInsideItsVolume(t *testing.T) {
	volume, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	write := func(path, content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(outside, "KEY='stolen'")
	write(filepath.Join(volume, "good"), "KEY='value'")
	write(filepath.Join(volume, "huge"), "KEY='"+strings.Repeat("x", maxEnvFile)+"'")
	if err := os.Symlink(outside, filepath.Join(volume, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(volume, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"good": "", "link": "couldn't parse env file", "../" + filepath.Base(filepath.Dir(outside)) + "/secret": "couldn't parse env file",
		"pipe": "couldn't parse env file", "huge": "couldn't parse env file", "none": "couldn't parse env file",
	} {
		in := Input{Volumes: map[string]Volume{"v": {HostPath: volume}}}
		value, set, err := fileValue(in, &corev1.FileKeySelector{VolumeName: "v", Path: path, Key: "KEY"})
		if want == "" && (err != nil || !set || value != "value") || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %q, %v, %v, want error %q", path, value, set, err, want)
		}
	}
	in := Input{Volumes: map[string]Volume{"v": {HostPath: volume}}}
	if _, set, err := fileValue(in, &corev1.FileKeySelector{VolumeName: "v", Path: "good", Key: "NONE", Optional: ptr.To(true)}); set || err != nil {
		t.Errorf("an optional key: %v, %v", set, err)
	}
	if _, _, err := fileValue(in, &corev1.FileKeySelector{VolumeName: "none", Path: "good", Key: "KEY"}); err == nil ||
		err.Error() != `cannot find the volume "none" referenced by FileKeyRef` {
		t.Errorf("a volume that is not there: %v", err)
	}
}

func TestVariablesThatReferToEachOtherHaveAnEnd(t *testing.T) {
	pod := testPod()
	main := &pod.Spec.Containers[0]
	main.Env = []corev1.EnvVar{{Name: "A0", Value: strings.Repeat("x", 1<<10)}}
	for i := range 40 {
		main.Env = append(main.Env, corev1.EnvVar{Name: fmt.Sprintf("A%d", i+1), Value: fmt.Sprintf("$(A%d)$(A%d)", i, i)})
	}
	if _, err := Config(t.Context(), testInput(pod, main, nil)); err == nil || !strings.Contains(err.Error(), "environment variable A14: the references $(NAME) make more than 16 MiB of text") {
		t.Errorf("got %v", err)
	}
}
