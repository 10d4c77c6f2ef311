package container

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	sigsyaml "sigs.k8s.io/yaml"
)

// TestConfigurations compares the configurations of testdata/*.pod.yaml with the
// *.config.yaml beside them: the sandbox, and each container in its order. A
// pod.yaml may have ConfigMaps, Secrets and Services too.
func TestConfigurations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.pod.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no testdata: ", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".pod.yaml"), func(t *testing.T) {
			pod, objects := readCase(t, file)
			var out bytes.Buffer
			write := func(title string, config proto.Message, err error) {
				out.WriteString("--- # " + title + "\n")
				if err != nil {
					out.WriteString("error: " + err.Error() + "\n")
					return
				}
				out.Write(readable(t, config))
			}
			in := SandboxInput{Options: testOptions(), Pod: pod, CgroupParent: "/kubepods/pod" + string(pod.UID)}
			in.Warn = func(reason, message string) { out.WriteString("# " + reason + ": " + message + "\n") }
			sandbox, err := Sandbox(in)
			write("sandbox", sandbox, err)
			for i := range pod.Spec.InitContainers {
				config, err := Config(t.Context(), testInput(pod, &pod.Spec.InitContainers[i], objects))
				write("init container "+pod.Spec.InitContainers[i].Name, config, err)
			}
			for i := range pod.Spec.Containers {
				config, err := Config(t.Context(), testInput(pod, &pod.Spec.Containers[i], objects))
				write("container "+pod.Spec.Containers[i].Name, config, err)
			}
			golden.Assert(t, out.String(), strings.TrimSuffix(filepath.Base(file), ".pod.yaml")+".config.yaml")
		})
	}
}

// testOptions use every kind of node setting.
func testOptions() Options {
	return Options{
		ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local", ResolvConf: "testdata/resolv.conf",
		NodeIPs:     []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		SeccompRoot: "/var/lib/svclet/seccomp",
		CPUCFSQuota: true,
		Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourceMemory: resource.MustParse("7Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("90Gi"),
		},
		Host: Host{MemoryCapacity: 8 << 30, HugepageSizes: []string{"2MB"}},
	}
}

func testInput(pod *corev1.Pod, container *corev1.Container, objects Objects) Input {
	in := Input{
		Options: testOptions(), Objects: objects, Pod: pod, Container: container, SpecHash: 0xabc,
		ImageRef: "sha256:1234", ImageUser: ImageUser{UID: ptr.To[int64](0)},
		PodIPs: []string{"10.88.0.7", "fd00::7"}, HostIPs: []string{"192.0.2.1", "2001:db8::1"},
		Volumes:   map[string]Volume{},
		HostsFile: "/pods/u/etc-hosts", TerminationLog: "/pods/u/containers/" + container.Name + "/0000",
		SubPath: func(mount corev1.VolumeMount, subPath string) (string, error) {
			return "/pods/u/volume-subpaths/" + mount.Name + "/" + subPath, nil
		},
	}
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		in.Volumes[name] = Volume{
			HostPath: "/pods/u/volumes/" + name,
			ReadOnly: pod.Spec.Volumes[i].ConfigMap != nil || pod.Spec.Volumes[i].Secret != nil,
		}
	}
	return in
}

// readCase reads a pod and its objects.
func readCase(t *testing.T, file string) (*corev1.Pod, *fakeObjects) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects := newFakeObjects()
	pod := &corev1.Pod{}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return pod, objects
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		read := func(into any) {
			if err := sigsyaml.UnmarshalStrict(document, into); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
		if err := sigsyaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "Pod":
			read(pod)
		case "ConfigMap":
			configMap := &corev1.ConfigMap{}
			read(configMap)
			objects.configMaps[configMap.Namespace+"/"+configMap.Name] = configMap
		case "Secret":
			secret := &corev1.Secret{}
			read(secret)
			for key, value := range secret.StringData {
				if secret.Data == nil {
					secret.Data = map[string][]byte{}
				}
				secret.Data[key] = []byte(value)
			}
			objects.secrets[secret.Namespace+"/"+secret.Name] = secret
		case "Service":
			service := &corev1.Service{}
			read(service)
			objects.services[service.Namespace] = append(objects.services[service.Namespace], service)
		default:
			t.Fatalf("%s has a %q", file, kind.Kind)
		}
	}
}

// readable returns a configuration as YAML, with variables as NAME=value.
func readable(t *testing.T, message proto.Message) []byte {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: false}.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	if envs, ok := fields["envs"].([]any); ok {
		for i := range envs {
			var variable struct {
				Key   string `json:"key"`
				Value []byte `json:"value"`
			}
			raw, err := json.Marshal(envs[i])
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw, &variable); err != nil {
				t.Fatal(err)
			}
			envs[i] = variable.Key + "=" + string(variable.Value)
		}
	}
	out, err := sigsyaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fakeObjects are objects by namespace and name.
type fakeObjects struct {
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	services   map[string][]*corev1.Service
	reads      []string
}

func newFakeObjects() *fakeObjects {
	return &fakeObjects{
		configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{}, services: map[string][]*corev1.Service{},
	}
}

func (f *fakeObjects) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	f.reads = append(f.reads, "configmap "+namespace+"/"+name)
	if object := f.configMaps[namespace+"/"+name]; object != nil {
		return object, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmap"), name)
}

func (f *fakeObjects) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	f.reads = append(f.reads, "secret "+namespace+"/"+name)
	if object := f.secrets[namespace+"/"+name]; object != nil {
		return object, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secret"), name)
}

func (f *fakeObjects) Services(_ context.Context, namespace string) ([]*corev1.Service, error) {
	return f.services[namespace], nil
}
