// NNPACK on a processor that it does not support.
int nnp_initialize(void);
int nnp_initialize(void) {
  return 51;
}

int nnp_convolution_inference(void);
int nnp_convolution_inference(void) {
  return 51;
}
