package gates

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	_ "k8s.io/apiextensions-apiserver/pkg/features" // adds its gates
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// idleInLibraries are the gates that code of the libraries reads which svc does not use.
var idleInLibraries = map[string]string{
	"ComponentFlagz":                      "svc does not set Flagz",
	"ManifestBasedAdmissionControlConfig": "svc does not set a directory of manifests",
}

func TestTheGatesThatTheLibrariesReadAreKnown(t *testing.T) {
	const libraries = "k8s.io/apiserver k8s.io/apiextensions-apiserver k8s.io/kube-aggregator"
	list := exec.Command("go", "list", "-deps", "-f", `{{if .Module}}{{$at := .}}{{range .GoFiles}}{{$at.Module.Path}} {{$at.Dir}}/{{.}}{{"\n"}}{{end}}{{end}}`, "svc.dev/svc/apiserver")
	list.Stderr = os.Stderr
	files, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	read := regexp.MustCompile(`[fF]eatureGates?\.Enabled\(\w*features\.(\w+)\)`)
	gates, names := utilfeature.DefaultMutableFeatureGate.GetAll(), map[string]string{}
	for line := range strings.Lines(string(files)) {
		module, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.Contains(libraries, module) {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range read.FindAllSubmatch(source, -1) {
			if gate, ok := gates[featuregate.Feature(match[1])]; ok && !gate.LockToDefault {
				names[string(match[1])] = file
			}
		}
	}
	if len(names) < 20 {
		t.Fatalf("found only %v", names)
	}
	for name, file := range names {
		if !Acts(name) && unsupported[featuregate.Feature(name)] == "" && idleInLibraries[name] == "" {
			t.Errorf("%s is read in %s: add it to ofLibraries", name, file)
		}
	}
}
