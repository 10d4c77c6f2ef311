// Command svclet is the node agent: it runs the pods of one node.
package main

import (
	"os"

	_ "k8s.io/component-base/logs/json/register" // the format json of logs
)

func main() {
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}
