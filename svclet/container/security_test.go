package container

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func TestRunAsNonRoot(t *testing.T) {
	const where = ` (pod: "web_shop(u-1)", container: main)`
	for _, test := range []struct {
		name      string
		pod       *corev1.PodSecurityContext
		container *corev1.SecurityContext
		user      ImageUser
		want      string
	}{
		{name: "not required", user: ImageUser{UID: ptr.To[int64](0)}},
		{name: "an image that runs as root", container: &corev1.SecurityContext{RunAsNonRoot: ptr.To(true)}, user: ImageUser{UID: ptr.To[int64](0)},
			want: "container has runAsNonRoot and image will run as root" + where},
		{name: "an image without a user", container: &corev1.SecurityContext{RunAsNonRoot: ptr.To(true)},
			want: "container has runAsNonRoot and image will run as root" + where},
		{name: "required by the pod", pod: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}, user: ImageUser{UID: ptr.To[int64](0)},
			want: "container has runAsNonRoot and image will run as root" + where},
		{name: "the container overrides its pod", pod: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)},
			container: &corev1.SecurityContext{RunAsNonRoot: ptr.To(false)}, user: ImageUser{UID: ptr.To[int64](0)}},
		{name: "an image that runs as a name", container: &corev1.SecurityContext{RunAsNonRoot: ptr.To(true)}, user: ImageUser{Name: "www"},
			want: "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root" + where},
		{name: "an image with a user other than root", container: &corev1.SecurityContext{RunAsNonRoot: ptr.To(true)}, user: ImageUser{UID: ptr.To[int64](7)}},
		{name: "an image with a user ID out of range", container: &corev1.SecurityContext{RunAsNonRoot: ptr.To(true)}, user: ImageUser{UID: ptr.To[int64](1 << 31)},
			want: "container has runAsNonRoot and image has an invalid user id (2147483648). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive" + where},
		{name: "the spec runs it as root", container: &corev1.SecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](0)}, user: ImageUser{UID: ptr.To[int64](7)},
			want: "container's runAsUser breaks non-root policy" + where},
		{name: "a user ID in the spec", pod: &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](7)}, container: &corev1.SecurityContext{RunAsNonRoot: ptr.To(true)}, user: ImageUser{Name: "www"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := testPod()
			pod.Spec.SecurityContext, pod.Spec.Containers[0].SecurityContext = test.pod, test.container
			in := testInput(pod, &pod.Spec.Containers[0], nil)
			in.ImageUser = test.user
			_, err := Config(t.Context(), in)
			if test.want == "" && err != nil || test.want != "" && (err == nil || err.Error() != test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestSeccomp(t *testing.T) {
	profile := func(kind corev1.SeccompProfileType, path string) *corev1.SeccompProfile {
		p := &corev1.SeccompProfile{Type: kind}
		if path != "" {
			p.LocalhostProfile = &path
		}
		return p
	}
	for _, test := range []struct {
		name           string
		pod, container *corev1.SeccompProfile
		byDefault      bool
		want           string
	}{
		{name: "no profile", want: "Unconfined"},
		{name: "the node's default", byDefault: true, want: "RuntimeDefault"},
		{name: "unconfined in spite of the node's default", byDefault: true, pod: profile("Unconfined", ""), want: "Unconfined"},
		{name: "the container before its pod", pod: profile("Unconfined", ""), container: profile("RuntimeDefault", ""), want: "RuntimeDefault"},
		{name: "a file", container: profile("Localhost", "a/b.json"), want: "Localhost /var/lib/svclet/seccomp/a/b.json"},
		{name: "no file", container: profile("Localhost", ""), want: "localhostProfile must be set if seccompProfile type is Localhost."},
		{name: "a file elsewhere", container: profile("Localhost", "../pki/key"), want: `localhostProfile "../pki/key" must be a path below the node's directory of seccomp profiles`},
	} {
		pod := testPod()
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: test.pod}
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{SeccompProfile: test.container}
		o := testOptions()
		o.SeccompDefault = test.byDefault
		got, err := seccomp(o, pod, &pod.Spec.Containers[0])
		text := strings.TrimSpace(got.GetProfileType().String() + " " + got.GetLocalhostRef())
		if err != nil {
			text = err.Error()
		}
		if text != test.want {
			t.Errorf("%s: %s, want %s", test.name, text, test.want)
		}
	}
}

func TestAppArmor(t *testing.T) {
	const key = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "main"
	runtimeDefault := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	local := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: ptr.To("mine")}
	for _, test := range []struct {
		name           string
		absent         bool
		annotation     string
		pod, container *corev1.AppArmorProfile
		want, old      string
	}{
		{name: "no profile"},
		{name: "no profile, no AppArmor", absent: true},
		{name: "the runtime's", container: runtimeDefault, want: "RuntimeDefault", old: "runtime/default"},
		{name: "one's own", pod: runtimeDefault, container: local, want: "Localhost mine", old: "localhost/mine"},
		{name: "the annotation before the pod", pod: runtimeDefault, annotation: "localhost/old", want: "Localhost old", old: "localhost/old"},
		{name: "unconfined, no AppArmor", absent: true, annotation: "unconfined", want: "Unconfined", old: "unconfined"},
		{name: "the runtime's, no AppArmor", absent: true, pod: runtimeDefault, want: "Cannot enforce AppArmor: AppArmor is not enabled on the host"},
	} {
		pod := testPod()
		if test.annotation != "" {
			pod.Annotations = map[string]string{key: test.annotation}
		}
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: test.pod}
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: test.container}
		got, old, err := appArmor(Host{AppArmor: !test.absent}, pod, &pod.Spec.Containers[0])
		text := ""
		if got != nil {
			text = strings.TrimSpace(got.ProfileType.String() + " " + got.LocalhostRef)
		}
		if err != nil {
			text = err.Error()
		}
		if text != test.want || old != test.old {
			t.Errorf("%s: %s, %s, want %s, %s", test.name, text, old, test.want, test.old)
		}
	}
}

func TestNamespaces(t *testing.T) {
	own := &runtimeapi.UserNamespace{
		Mode: runtimeapi.NamespaceMode_POD,
		Uids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}, Gids: []*runtimeapi.IDMapping{{HostId: 131072, Length: 65536}},
	}
	pod := testPod()
	pod.Spec.HostUsers = ptr.To(false)
	in := testInput(pod, &pod.Spec.Containers[0], nil)
	if _, err := Config(t.Context(), in); err == nil || err.Error() != "can't set `spec.hostUsers: false`, runtime does not support user namespaces" {
		t.Errorf("a user namespace of its own, where there is none: %v", err)
	}
	in.UserNamespace = own
	config, err := Config(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(own, config.Linux.SecurityContext.NamespaceOptions.UsernsOptions, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	for _, mount := range config.Mounts {
		if len(mount.UidMappings) != 1 || mount.UidMappings[0].HostId != 65536 || len(mount.GidMappings) != 1 || mount.GidMappings[0].HostId != 131072 {
			t.Errorf("%s is not mapped: %v", mount.ContainerPath, mount)
		}
	}

	pod = testPod()
	in = testInput(pod, &pod.Spec.Containers[0], nil)
	in.TargetID = "abc"
	if config, err = Config(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if n := config.Linux.SecurityContext.NamespaceOptions; n.Pid != runtimeapi.NamespaceMode_TARGET || n.TargetId != "abc" {
		t.Errorf("processes of another container: %v", n)
	}
	pod.Spec.ShareProcessNamespace = ptr.To(true)
	if config, err = Config(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if n := config.Linux.SecurityContext.NamespaceOptions; n.Pid != runtimeapi.NamespaceMode_POD {
		t.Errorf("processes of another container where all are shared: %v", n)
	}
}

func TestWindowsOptionsChangeNothing(t *testing.T) {
	pod := testPod()
	without, err := Config(t.Context(), testInput(pod, &pod.Spec.Containers[0], nil))
	if err != nil {
		t.Fatal(err)
	}
	options := &corev1.WindowsSecurityContextOptions{HostProcess: ptr.To(false), RunAsUserName: ptr.To("ContainerUser")}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{WindowsOptions: options}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{WindowsOptions: options}
	with, err := Config(t.Context(), testInput(pod, &pod.Spec.Containers[0], nil))
	if diff := cmp.Diff(without, with, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("error %v, or the configuration changes:\n%s", err, diff)
	}
}
