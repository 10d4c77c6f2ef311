package aggregated

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"

	"svc.dev/svc/test/launch"
)

// manifestArgs returns the arguments with which config/aggregated, with components, starts
// the container of a Deployment. instead has the values of flags that have others outside of a pod; a flag with
// the value "" is left out. Each must be one of the manifest's.
func manifestArgs(ctx context.Context, name string, instead map[string]string, components ...string) []string {
	GinkgoHelper()
	rendered := render(ctx, components...)
	unused := sets.KeySet(instead)
	var args []string
	for _, arg := range deploymentOf(rendered, name).Spec.Template.Spec.Containers[0].Args {
		flag, _, isFlag := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		value, replaced := instead[flag]
		unused.Delete(flag)
		switch {
		case !isFlag || !replaced:
			args = append(args, arg)
		case value != "":
			args = append(args, "--"+flag+"="+value)
		}
	}
	Expect(unused.UnsortedList()).To(BeEmpty(), "flags that the Deployment %s does not have", name)
	return args
}

// render returns the manifests of config/aggregated with components.
func render(ctx context.Context, components ...string) []byte {
	GinkgoHelper()
	root, err := filepath.Abs("../..")
	Expect(err).NotTo(HaveOccurred())
	binary, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	overlay := GinkgoT().TempDir()
	if overlay, err = filepath.EvalSymlinks(overlay); err != nil {
		Fail(err.Error())
	}
	config, err := filepath.Rel(overlay, filepath.Join(root, "config"))
	Expect(err).NotTo(HaveOccurred())
	kustomization := object{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": []string{filepath.Join(config, "aggregated")}}
	var paths []string
	for _, component := range components {
		paths = append(paths, filepath.Join(config, "components", component))
	}
	kustomization["components"] = paths
	content, err := json.Marshal(kustomization)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), content, 0o600)).To(Succeed())
	rendered, err := exec.CommandContext(ctx, binary, "kubectl", "kustomize", overlay).Output()
	Expect(err).NotTo(HaveOccurred())
	return rendered
}

// rolesOf returns the roles of rendered manifests, and the bindings of an account, for a
// user of the host instead.
func rolesOf(rendered []byte, account, user string) string {
	GinkgoHelper()
	return manifestsOf(rendered, func(obj object) bool {
		if subjects, _ := obj["subjects"].([]any); len(subjects) > 0 && subjects[0].(object)["name"] == account {
			obj["subjects"] = []object{{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}}
			return true
		}
		return (obj["kind"] == "ClusterRole" || obj["kind"] == "Role") && strings.HasPrefix(nameOf(obj), account)
	})
}

func nameOf(obj object) string { return obj["metadata"].(object)["name"].(string) }

// manifestsOf returns those of rendered manifests that keep selects. It may change them.
func manifestsOf(rendered []byte, keep func(object) bool) string {
	GinkgoHelper()
	var found []string
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096)
	for {
		var obj object
		err := documents.Decode(&obj)
		if errors.Is(err, io.EOF) {
			return strings.Join(found, "\n---\n")
		}
		Expect(err).NotTo(HaveOccurred())
		if keep(obj) {
			manifest, err := json.Marshal(obj)
			Expect(err).NotTo(HaveOccurred())
			found = append(found, string(manifest))
		}
	}
}

// deploymentOf returns a Deployment of rendered manifests.
func deploymentOf(rendered []byte, name string) *appsv1.Deployment {
	GinkgoHelper()
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096)
	for {
		d := &appsv1.Deployment{}
		err := documents.Decode(d)
		if errors.Is(err, io.EOF) {
			Fail("no Deployment " + name)
		}
		Expect(err).NotTo(HaveOccurred())
		if d.Kind == "Deployment" && d.Name == name {
			return d
		}
	}
}
