package aggregated

import (
	"bytes"
	"context"
	"errors"
	"io"
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

// manifestArgs returns the arguments with which config/aggregated starts the container of a
// Deployment. instead has the values of flags that have others outside of a pod; a flag with
// the value "" is left out. Each must be one of the manifest's.
func manifestArgs(ctx context.Context, name string, instead map[string]string) []string {
	GinkgoHelper()
	root, err := filepath.Abs("../..")
	Expect(err).NotTo(HaveOccurred())
	binary, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	rendered, err := exec.CommandContext(ctx, binary, "kubectl", "kustomize", filepath.Join(root, "config", "aggregated")).Output()
	Expect(err).NotTo(HaveOccurred())
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
