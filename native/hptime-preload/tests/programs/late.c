void tell(void);
int main(void) { tell(); }
