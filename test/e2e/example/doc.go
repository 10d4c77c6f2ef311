// Package example is the example of docs/testing-controllers.md: a test of a controller with
// envtest of controller-runtime. The end-to-end suite runs it with svc.
package example
